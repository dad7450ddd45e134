# Run `make` for the list of targets. Everything lives in .venv and .tools; nothing outside is changed, but Debian
# packages that the tests need are installed where that is allowed (root, or sudo without a password).

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin

# Set in many container images. Without bytecode each start of headrace compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo check test lint bench bench-loader bench-mount bench-process bench-decode bench-shards bench-tokens bench-sync bench-runs bench-tracking bench-why bench-access bench-copy bench-models-loading bench-start bench-web bench-models bench-gateway bench-cluster bench-cluster-sim dist docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## prepare .venv with the headrace command and all that the demo needs
	@PYTHON=$(PYTHON) scripts/setup demo

demo: setup ## the main job end to end on a small real data set, under two minutes (ARGS=--cluster: on two machines)
	@$(if $(findstring --cluster,$(ARGS)),scripts/framework-tools ray)
	@PATH="$(CURDIR)/$(RUN):$$PATH" $(if $(findstring --cluster,$(ARGS)),.tools/ray,$(VENV))/bin/python -m headrace demo $(ARGS)

check: ## lint, types, arrows, unit and property tests: three minutes once set up (ARGS=... goes to pytest)
	@PYTHON=$(PYTHON) scripts/setup demo test lint
	@scripts/check $(ARGS)

test: ## install what the tests need, then run all of them (ARGS=mount: those of a room; else ARGS goes to pytest)
	@PYTHON=$(PYTHON) scripts/setup-tests
	@scripts/run-tests $(ARGS)

lint: ## ruff, basedpyright, import-linter
	@PYTHON=$(PYTHON) scripts/setup demo test lint
	@$(RUN)/ruff check .
	@$(RUN)/basedpyright
	@$(RUN)/lint-imports --no-cache

bench: bench-loader bench-mount bench-process bench-decode bench-shards bench-tokens bench-sync bench-runs bench-tracking bench-why bench-access bench-copy bench-models-loading bench-start bench-web bench-models bench-gateway bench-cluster bench-cluster-sim ## all benchmarks, peers in the same run; results in benchmarks/results

bench-loader: ## the loader against its peers (ARGS=... goes to benchmarks/loader.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@scripts/debian-packages
	@$(RUN)/python benchmarks/loader.py $(ARGS)

bench-mount: ## the mount against rclone, s3fs and weed mount (ARGS=... goes to benchmarks/mount.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@scripts/debian-packages
	@$(RUN)/python benchmarks/mount.py $(ARGS)

bench-cluster: ## jobs on a Ray cluster of this machine, nodes that are lost (ARGS=... goes to benchmarks/cluster.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@scripts/framework-tools ray
	@PATH="$(CURDIR)/$(RUN):$$PATH" .tools/ray/bin/python benchmarks/cluster.py $(ARGS)

bench-cluster-sim: ## 1,000 ranks on 128 machines, simulated (ARGS=... goes to benchmarks/cluster_sim.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@$(RUN)/python benchmarks/cluster_sim.py $(ARGS)

bench-process: ## when the loader's child process is worth it (ARGS=... goes to benchmarks/process.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@scripts/debian-packages
	@$(RUN)/python benchmarks/process.py $(ARGS)

bench-decode: ## decode threads that are found, against a sweep by hand; worker processes against other loaders
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@scripts/debian-packages
	@scripts/framework-tools loaders
	@$(RUN)/python benchmarks/decode.py $(ARGS)
	@$(RUN)/python benchmarks/decode_processes.py

bench-shards: ## shards against webdataset, TensorFlow, pyarrow, Mosaic and litdata (ARGS=... goes to benchmarks/shards.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@scripts/debian-packages
	@scripts/framework-tools
	@scripts/framework-tools peers
	@dpkg -s wesnoth-1.16-data > /dev/null 2>&1 || scripts/apt-install wesnoth-1.16-data
	@$(RUN)/python benchmarks/shards.py $(ARGS)

bench-tokens: ## blocks of tokens against litdata's TokensLoader and Mosaic (ARGS=... goes to benchmarks/tokens.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@scripts/debian-packages
	@scripts/framework-tools peers
	@$(RUN)/python benchmarks/tokens.py $(ARGS)

bench-sync: ## a folder kept in a bucket: a checkpoint against s5cmd, a log (ARGS=... goes to benchmarks/sync.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@$(RUN)/python benchmarks/sync.py $(ARGS)

bench-runs: ## what it costs to be a run: overhead, requests, memory, lag (ARGS=... goes to benchmarks/runs.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@$(RUN)/python benchmarks/runs.py $(ARGS)

bench-tracking: ## calls a second of hr.log (ARGS=... goes to benchmarks/tracking.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@$(RUN)/python benchmarks/tracking.py $(ARGS)

bench-access: ## single samples and 64 at once, at random, against the loader (ARGS=... goes to benchmarks/access.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@$(RUN)/python benchmarks/access.py $(ARGS)

bench-copy: ## cp and long reads against s5cmd, rclone and the AWS command line (ARGS=... goes to benchmarks/copies.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@scripts/framework-tools peers
	@$(RUN)/python benchmarks/copies.py $(ARGS)

bench-models-loading: ## models into memory: safetensors and ONNX against Model Streamer and others (ARGS=... goes to benchmarks/models_loading.py)
	@PYTHON=$(PYTHON) scripts/setup demo test bench
	@scripts/framework-tools loaders
	@$(RUN)/python benchmarks/models_loading.py $(ARGS)

bench-web: ## the page in a browser against MLflow, TensorBoard and trackio (ARGS=... goes to benchmarks/web.py)
	@PYTHON=$(PYTHON) scripts/setup demo test bench
	@scripts/debian-packages
	@command -v chromium > /dev/null || scripts/apt-install chromium
	@scripts/framework-tools trackers
	@scripts/framework-tools trackio
	@$(RUN)/python benchmarks/web.py $(ARGS)

bench-models: ## models behind HTTP against Triton, Ray Serve and LitServe (ARGS=... goes to benchmarks/models.py)
	@PYTHON=$(PYTHON) scripts/setup demo test bench
	@scripts/framework-tools servers
	@scripts/framework-tools ray
	@dpkg -s haproxy > /dev/null 2>&1 || scripts/apt-install haproxy
	@$(RUN)/python benchmarks/models.py $(ARGS)

bench-gateway: ## the S3 door against nginx and the store itself (ARGS=... goes to benchmarks/gateway.py)
	@PYTHON=$(PYTHON) scripts/setup demo test bench
	@scripts/debian-packages
	@$(RUN)/python benchmarks/gateway.py $(ARGS)

bench-start: ## how long the command line takes to start (ARGS=... goes to benchmarks/start.py)
	@PYTHON=$(PYTHON) scripts/setup demo bench
	@$(RUN)/python benchmarks/start.py $(ARGS)

bench-why: ## whether headrace why is right, on runs of every class (ARGS=... goes to benchmarks/why.py)
	@PYTHON=$(PYTHON) scripts/setup demo test bench
	@$(RUN)/python benchmarks/why.py $(ARGS)

dist: ## wheel and source distribution into dist/, then the release notes
	@PYTHON=$(PYTHON) scripts/setup demo
	@rm -rf dist
	@scripts/dist

docs: ## the documentation as a site in .site: links checked, its examples and claims run (ARGS=serve: in a browser)
	@PYTHON=$(PYTHON) scripts/setup demo test
	@scripts/framework-tools docs
	@$(if $(filter serve,$(ARGS)),.tools/docs/bin/mkdocs serve,$(RUN)/pytest -q tests/docs && .tools/docs/bin/mkdocs build --strict)

clean: ## remove .venv, .tools and caches
	rm -rf $(VENV) .tools .demo .site dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
