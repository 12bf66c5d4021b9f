"""x86 instructions, one file a family: contract and how operands lie."""
