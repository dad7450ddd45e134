"""The conversation with the kernel: mount points, the FUSE protocol, requests and answers."""
