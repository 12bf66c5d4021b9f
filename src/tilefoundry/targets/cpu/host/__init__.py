"""What this machine's CPU can do: found, and measured."""
