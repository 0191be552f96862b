# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Go's text/template as far as it is known here, after the documentation of the package and its exec_test.go."""

from __future__ import annotations

from typing import Any, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._text.go_template import Struct, TemplateError, render

pytestmark = pytest.mark.once

DATA = Struct(
    On=True,
    Off=False,
    Name="k3s",
    Empty="",
    Seven=7,
    Zero=0,
    Nothing=None,
    Names=["b", "a"],
    None_=[],
    Map={"z": "last", "a": "first"},
    Inner=Struct(Deep=Struct(Text="x"), Off=False),
    Runtimes={"nvidia": Struct(Type="t", Binary="/b")},
)


def made(text: str, data: Any = DATA, templates: Optional[Mapping[str, str]] = None) -> str:
    return render(text, data, templates=templates or {}, functions={"loud": lambda text: text.upper()})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain } text { of }} TOML", "plain } text { of }} TOML"),
        ("{{ .Name }}/{{.Name}}", "k3s/k3s"),
        ("{{ .On }} {{ .Seven }} {{ .Inner.Deep.Text }}", "true 7 x"),
        ("{{ $.Name }}", "k3s"),
        ("a  {{- .Name -}}  b", "ak3sb"),
        ("a\n{{- /* a {{ comment }} */ -}}\nb", "ab"),
        ("a {{/* x */}} b", "a  b"),
        ("{{- .Seven -}}{{ -3 }}", "7-3"),
        ("{{ if .On }}yes{{ else }}no{{ end }}", "yes"),
        ("{{if .Off}}yes{{else if .On}}other{{else}}no{{end}}!", "other!"),
        ("{{if .Off}}1{{else if .Zero}}2{{else if .Empty}}3{{else}}4{{end}}!", "4!"),
        (
            "{{ if .Nothing }}a{{ end }}{{ if .None_ }}b{{ end }}{{ if .Names }}c{{ end }}{{ if .Inner }}d{{ end }}",
            "cd",
        ),
        ("{{ with .Name }}<{{ . }}>{{ end }}{{ with .Empty }}x{{ else }}none{{ end }}", "<k3s>none"),
        ("{{ with .Inner }}{{ .Deep.Text }}{{ $.Name }}{{ end }}", "xk3s"),
        ("{{ with $x := .Name }}{{ $x }}{{ end }}", "k3s"),
        ("{{ range .Names }}[{{ . }}]{{ end }}", "[b][a]"),
        ('{{ range $i, $n := .Names }}{{ if $i }}, {{ end }}{{ printf "%q" $n }}{{ end }}', '"b", "a"'),
        ("{{ range $k, $v := .Map }}{{ $k }}={{ $v }};{{ end }}", "a=first;z=last;"),
        ("{{ range $v := .Map }}{{ $v }};{{ end }}", "first;last;"),
        ("{{ range .None_ }}x{{ else }}none{{ end }}", "none"),
        ('{{ range .Names }}{{ if eq . "b" }}{{ continue }}{{ end }}{{ . }}{{ end }}', "a"),
        ("{{ range .Names }}{{ . }}{{ break }}{{ end }}", "b"),
        ("{{ range $k, $v := .Runtimes }}{{$k}} {{ $v.Type }} {{ $.Name }}{{ end }}", "nvidia t k3s"),
        ("{{ $x := 1 }}{{ if .On }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ $x := 1 }}{{ if .On }}{{ $x := 2 }}{{ end }}{{ $x }}", "1"),
        ('{{ .Name | printf "%s-%s" "a" }}', "a-k3s"),
        ('{{ loud .Name | printf "%q" }}', '"K3S"'),
        ("{{ printf `%v%% %d %t` .Name 3 true }}", "k3s% 3 true"),
        ('{{ eq .Name "k3s" }} {{ ne .Name "k3s" }} {{ eq .Seven 1 7 }}', "true false true"),
        ("{{ and .On .Empty }}|{{ or .Empty .Name }}|{{ not .On }}", "|k3s|false"),
        ("{{ and .Off .Nothing.There }}{{ or .On .Nothing.There }}", "falsetrue"),
        ("{{ if and .On (or .Off (eq .Seven 7)) }}x{{ end }}", "x"),
        ("{{ if and .On (not .Off) }}x{{ end }}", "x"),
        ('{{ lt 1 2 }}{{ le 2 2 }}{{ gt 1 2 }}{{ ge "b" "a" }}', "truetruefalsetrue"),
        ('{{ len .Names }}{{ len .Name }}{{ index .Map "a" }}{{ index .Names 1 }}', "23firsta"),
        ('{{ (index .Runtimes "nvidia").Binary }}', "/b"),
        ('{{ print 1 2 "a" 3 }}', "1 2a3"),
        ("{{ println .Name }}", "k3s\n"),
        ('{{ define "one" }}<{{ . }}>{{ end }}{{ template "one" .Name }}{{ template "one" "y" }}', "<k3s><y>"),
        ('{{ block "one" .Inner }}{{ .Deep.Text }}{{ end }}', "x"),
        ('{{ template "base" . }}', "of k3s"),
        # Theirs is added last.
        ('{{ define "base" }}mine{{ end }}{{ template "base" . }}', "of k3s"),
        ("[a]\r\n{{ if .On }}\r\nb = 1\r\n{{ end }}", "[a]\r\n\r\nb = 1\r\n"),
        ('{{ "a\\"b" }}{{ `c\\` }}', 'a"bc\\'),
    ],
)
def test_a_template_is_rendered_as_go_does_it(text: str, expected: str) -> None:
    assert made(text, templates={"base": "of {{ .Name }}"}) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n{{ .Nope }}", "line 2: in {{ .Nope }} the field .Nope is not supported"),
        ("{{ .Nothing.Name }}", "line 1: in {{ .Nothing.Name }} .Name is read from a nil value"),
        ("{{ .Name.First }}", "line 1: in {{ .Name.First }} the field .First is not supported"),
        ('{{ env "HOME" }}', 'line 1: in {{ env "HOME" }} the function env is not supported'),
        ("{{ .Name | quote }}", "line 1: in {{ .Name | quote }} the function quote is not supported"),
        ("{{ .Name 1 }}", "line 1: in {{ .Name 1 }} .Name is not a supported function"),
        ("{{ 1 | .Name }}", "line 1: in {{ 1 | .Name }} .Name is not a supported function"),
        ("{{ $x }}", "line 1: in {{ $x }} there is no variable $x"),
        ("{{ if .On }}{{ $x := 1 }}{{ end }}{{ $x }}", "line 1: in {{ $x }} there is no variable $x"),
        ("{{ if .On }}", "line 1: the if has no end"),
        ("{{ end }}", "line 1: end without a block to end"),
        ("{{ else }}", "line 1: else without if, with or range"),
        ("{{ }}", "line 1: an action is empty"),
        ("{{ .Name", "line 1: an action is not closed"),
        ('{{ template "no" . }}', "line 1: there is no template no"),
        ("{{ template .Name }}", "line 1: a template has no name"),
        ("{{ .Names }}", "line 1: printing a list is not supported"),
        ("{{ .Inner }}", "line 1: printing a struct is not supported"),
        ("{{ .Nothing }}", "line 1: printing nil is not supported"),
        ("{{ range .Seven }}{{ end }}", "line 1: range over a number is not supported"),
        ("{{ range .Inner }}{{ end }}", "line 1: range over a struct is not supported"),
        (
            "{{ eq .Name 1 }}",
            "line 1: in {{ eq .Name 1 }} eq does not accept its arguments: a string and a number cannot be compared",
        ),
        (
            "{{ lt .On .Off }}",
            "line 1: in {{ lt .On .Off }} lt does not accept its arguments: a boolean and a boolean cannot be ordered",
        ),
        (
            '{{ printf "%x" 1 }}',
            'line 1: in {{ printf "%x" 1 }} printf does not accept its arguments: %x of a number is not supported',
        ),
        (
            '{{ printf "%s" 1 }}',
            'line 1: in {{ printf "%s" 1 }} printf does not accept its arguments: %s of a number is not supported',
        ),
        ("{{ not .On .Off }}", None),
        ("{{ 1.5 }}", None),
        ("{{ 'a' }}", "line 1: \"'a' \" is not supported"),
        ("{{ 0x10 }}", None),
        ("{{ (.Name }}", None),
        ("{{ break }}", "line 1: break or continue outside of a range"),
        (
            '{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}',
            "line 1: templates call each other more than 50 times",
        ),
        (
            "{{ not len .Names }}",
            "line 1: in {{ not len .Names }} len is a call without parentheses as an argument, which is not supported",
        ),
        ('{{ index .Map "no" }}', None),
        ("{{- .Name -}", None),
        ("{{ if }}x{{ end }}", None),
        ('{{ "\\x41" }}', None),
    ],
)
def test_what_is_not_known_of_a_template_or_would_end_it_is_an_error(text: str, message: Any) -> None:
    with pytest.raises(TemplateError) as caught:
        made(text)
    if message:
        assert str(caught.value) == message
    assert str(caught.value).startswith("line ")


def test_the_length_of_a_text_that_is_not_utf_8_is_that_of_its_bytes() -> None:
    assert render('{{ len "caf\udce9" }}', {}, templates={}, functions={}) == "4"
