# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# The work is in tools/make.py; `make help` lists the targets. PYTHON picks the interpreter that runs it (3.9 or newer).
PYTHON ?= python3
SCENARIO ?=
CHAPTER ?=
CONCERN ?=
BEFORE ?=
AFTER ?=

TARGETS := test try demo bench bench-scale quick lint unit sanity molecule kubernetes awx vm-test destroy docs build nvml-simulator \
	profile clean help

.PHONY: $(TARGETS)
.DEFAULT_GOAL := help

$(TARGETS):
	@PYTHON='$(PYTHON)' sh tools/make.sh $@ $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(CHAPTER),--chapter '$(CHAPTER)') \
		$(foreach name,$(CONCERN),--concern $(name)) $(if $(BEFORE),--before '$(BEFORE)') $(if $(AFTER),--after '$(AFTER)')
