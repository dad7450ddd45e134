"""The demonstration: a whole training job over the public interface, on a server of its own.

`story` tells it; `data` makes the objects; `plan` is what the training scripts are told; `train` is the user's script,
which `rehearsal` runs, stops, resumes and reruns; `proof` compares what was seen before the stop with what was seen
after; `mounted` and `packed` train from a folder and from shards.
"""
