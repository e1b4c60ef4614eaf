"""What people see: each function turns values into something to print, and prints nothing."""
