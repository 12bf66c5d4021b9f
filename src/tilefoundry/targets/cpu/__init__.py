"""CPUs: cores with vector registers, some with tile registers."""
