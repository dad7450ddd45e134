"""Which sample stands at which position of an epoch, and which positions are done."""
