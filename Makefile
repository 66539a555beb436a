# A thin front for scripts/. Every target installs and builds what it needs; nothing is done twice.
.PHONY: build test demo ci format clean

build:  ## install dependencies, build build/release/bin/keel (about 10 minutes the first time on two cores)
	@scripts/build.sh keel

test:   ## build and run all tests
	@scripts/test.sh

demo:   ## train SmolLM2-135M-Instruct with GRPO on one-digit additions and print where the report is
	@scripts/demo.sh

ci:     ## what CI runs
	@.ci/run

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format -i

clean:
	rm -rf build
