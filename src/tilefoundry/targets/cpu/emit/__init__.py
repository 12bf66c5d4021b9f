"""What x86 adds to C for cores: vectors and tiles that have instructions."""
