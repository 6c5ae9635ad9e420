"""Long runs and large loads: what they leave behind, in memory, in tables and in the block pool."""
