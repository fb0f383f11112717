"""What a broker computes, without Spark: kernels on Arrow batches and numpy arrays that every protection shares."""
