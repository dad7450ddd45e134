"""One module for each way to reach a store. Only `headrace.store.registry` imports them."""
