"""Services and rules as documents: read, checked, and made into ways to send."""
