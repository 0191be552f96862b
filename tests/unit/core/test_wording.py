# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.node.node import status
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, InUse
from ansible_collections.gpufleet.node.plugins.module_utils._core.wording import printable
from hypothesis import given
from hypothesis import strategies as st

# Clears the screen, sets the clipboard, forges a line, turns the direction of what follows.
HOSTILE = "\x1b[2J\x1b]52;c;cm0=\x07\r\n6 of 6 nodes are in sync\u2028\u202e"
SHOWN = r"\x1b[2J\x1b]52;c;cm0=\x07\r\n6 of 6 nodes are in sync\u2028\u202e"


@given(st.text())
def test_what_is_shown_is_one_line_that_a_terminal_does_not_obey(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert shown == text or not text.isprintable()


def test_a_name_that_a_terminal_would_obey_is_shown_in_an_error() -> None:
    error = InUse("change gpu0", object=HOSTILE, cause=f"{HOSTILE} uses it", found=HOSTILE, hint=HOSTILE)
    assert str(error).isprintable()
    assert str(error).count(SHOWN) == 4
    # What a program reads is as it was found.
    assert error.failure()["object"] == HOSTILE


def test_the_status_of_a_node_shows_such_a_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = dict.fromkeys(("invalid", "unknown", "unknown_at_boot", "drifted", "pending"), 0)
    monkeypatch.setattr(status, "assess", lambda *_arguments, **_options: answer)
    monkeypatch.setattr(status, "describe", lambda _answer: ["NODE", HOSTILE])
    status.status(None)  # type: ignore[arg-type]
    assert capsys.readouterr().out == f"NODE\n{SHOWN}\n"


def test_a_message_of_one_line_is_as_it_was_written() -> None:
    assert str(GpuFleetError("look", object="/é", cause="no «ä»")) == "Cannot look in /é: no «ä»."
