"""The Linux kernel as the agent reads it: /sys, /proc, control groups, the kernel log and mount(2)."""
