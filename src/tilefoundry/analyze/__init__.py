"""What a program costs, before any kernel exists; each answer is a table beside the IR."""
