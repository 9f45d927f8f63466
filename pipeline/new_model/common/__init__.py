"""sketch: learns a function of two numbers from noisy samples."""
