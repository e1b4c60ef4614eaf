"""The stores: one contract, kept in different places."""
