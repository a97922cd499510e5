"""Fast attention kernels (backends): each says what it cannot serve, and computes the rest exactly."""
