"""Who is measured: one module each."""
