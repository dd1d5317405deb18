"""Speed and memory as ratios between two things measured in the same run."""
