#!/usr/bin/env python3
"""Makes tests/golden/jinja/cases.json: small templates, and what Jinja2 makes of them as transformers sets it up.

Run with Jinja2 3.1.6 from PyPI:  python3 make_jinja_goldens.py jinja/cases.json
"""
import json
import sys

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "n": 7, "f": 2.5, "s": "Hello World", "u": "d\u00e9j\u00e0 \u6211 \U0001f680", "empty": "", "t": True, "no": None, "l": [3, 1, 2],
    "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": {"x": [1, 2]}, "items2": 3}, "people": [
        {"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 5}, {"name": "Cid", "age": 31, "tags": []}],
    "nested": [[1, 2], [3, [4, None, True, 1.5, "q'\"\n"]]],
}

TEMPLATES = r"""
{{ n }}|{{ f }}|{{ s }}|{{ t }}|{{ no }}|{{ l }}|{{ d }}|{{ nested }}
{{ missing }}x|{{ missing is defined }}|{{ missing is undefined }}|{{ no is none }}|{{ no is defined }}
{{ missing.attribute }}
{{ d.missing }}x
{{ d.missing.more }}
{{ missing + 1 }}
{{ missing == missing2 }}|{{ missing == none }}|{{ no == none }}|{{ not missing }}
{% for x in missing %}a{% else %}b{% endfor %}
{% for x in no %}a{% endfor %}
{{ missing | length }}|{{ missing | list }}|{{ missing | join(',') }}|{{ missing | default('D') }}|{{ no | default('D') }}|{{ no | default('D', true) }}|{{ '' | default('D', true) }}
{{ 1 + 2 * 3 - 4 / 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 1e20 }}|{{ 1.0 }}|{{ 0.1 + 0.2 }}|{{ 1e16 }}|{{ 1e-5 }}|{{ 123456789.125 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1 / 0 }}
{{ -2 ** 2 }}|{{ 2 ** 3 ** 2 }}|{{ 10 - 2 - 3 }}|{{ 2 * 3 % 4 }}|{{ +3 }}|{{ - 3 }}|{{ -n|abs }}
{{ 'a' ~ 1 ~ 2.0 ~ none ~ true }}|{{ 'a' + 'b' ~ 'c' }}|{{ 1 ~ 2 + 3 }}
{{ 'a' + 1 }}
{{ 'ab' * 3 }}|{{ 3 * 'ab' }}|{{ [1] * 2 }}|{{ [1] + [2] }}|{{ (1,) + (2,) }}|{{ 'x' * -1 }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 'a' < 'b' }}|{{ [1, 2] < [1, 3] }}|{{ 1 == 1.0 }}|{{ true == 1 }}|{{ 'a' == 1 }}|{{ 1 != 2 }}|{{ 2 >= 2 }}|{{ 'é' > 'z' }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 3 in l }}|{{ 9 not in l }}|{{ 'lo W' in s }}|{{ 'b' in d }}|{{ 'z' in d }}|{{ not 3 in l }}|{{ 1 in (1, 2) }}|{{ 'x' in missing }}
{{ 1 in 'a1' }}
{{ 1 in 5 }}
{{ true and 1 }}|{{ 0 or 'x' }}|{{ '' and 1 }}|{{ not '' }}|{{ not not 1 }}|{{ none or missing or 'z' }}|{{ 1 and 2 or 3 }}
{{ 'a' if n > 5 else 'b' }}|{{ 'a' if n > 9 else 'b' }}|{{ 'a' if n > 9 }}|{{ ('a' if n > 9) is undefined }}|{{ 1 if 0 else 2 if 0 else 3 }}
{{ s[0] }}|{{ s[-1] }}|{{ s[2:5] }}|{{ s[::-1] }}|{{ s[:-6] }}|{{ s[-100:3] }}|{{ s[3:100:2] }}|{{ u[1] }}|{{ u[-1] }}|{{ u[5:] }}|{{ s[99] }}x|{{ s[5:2] }}x
{{ l[0] }}|{{ l[-1] }}|{{ l[1:] }}|{{ l[::-1] }}|{{ l[9] }}x|{{ l[-9:2] }}|{{ l[::2] }}|{{ l[2:0:-1] }}|{{ (1,2,3)[1:] }}|{{ l[0:0] }}
{{ l[::0] }}
{{ l['a'] }}x|{{ d['b'] }}|{{ d.a.x[1] }}|{{ d['a']['x'][-1] }}|{{ d[1] }}x|{{ people[0].name }}|{{ people.0.name }}|{{ people[1]['tags'] }}x
{{ n[0] }}x|{{ n.foo }}x|{{ none.foo }}x|{{ none[0] }}x
{{ d.items() | list }}|{{ d.keys() | list }}|{{ d.values() | list }}|{{ d.get('b') }}|{{ d.get('zz') }}|{{ d.get('zz', 4) }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}|{% for k in d %}{{ k }}{% endfor %}|{% for k, v in d | items %}{{ k }}{% endfor %}|{% for c in 'aé' %}[{{ c }}]{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [1] %}{{ a }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }};{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}|{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for x in l %}{% for y in l %}{{ loop.depth }}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% if x == 1 %}{% continue %}{% endif %}.{% endfor %}
{% for x in l %}{% set z = x %}{% endfor %}{{ z }}x{% set z = 0 %}{% for x in l %}{% set z = z + x %}{{ z }}{% endfor %}{{ z }}
{% set ns = namespace(a=1, b='x') %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}x
{% set d.b = 4 %}
{% if true %}{% set q = 5 %}{% endif %}{{ q }}|{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set tup = 1, 2 %}{{ tup }}|{% set (a, b) = [8, 9] %}{{ a }}{{ b }}
{% set block %}  hi {{ n }}{% endset %}[{{ block }}]|{% set x | upper %}abc{% endset %}{{ x }}|{% filter upper %}abc{{ n }}x{% endfilter %}|{% filter trim | title %} ab cd {% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}x
{% macro m(a, b=2, c='z') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=1, a=0) }}{{ m() }}
{% macro m(a) %}x{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}x{% endmacro %}{{ m(z=2) }}
{% macro fact(k) %}{{ 1 if k < 2 else k * fact(k - 1) | int }}{% endmacro %}{{ fact(6) }}
{% macro wrap(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call wrap(3) %}in{{ n }}{% endcall %}|{% macro each(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(y) each(l) %}[{{ y }}]{% endcall %}
{% set outer = 1 %}{% macro m() %}{{ outer }}{{ n }}{% endmacro %}{% set outer = 2 %}{{ m() }}
{% if n > 9 %}a{% elif n > 6 %}b{% elif n > 5 %}c{% else %}d{% endif %}|{% if missing %}a{% else %}b{% endif %}|{% if l and d %}y{% endif %}
{% raw %}{{ not }}{% if %}{% endraw %}|{# comment {{ x }} #}|{{ '{{ }}' }}|{{ "}}" }}|{{ {'a': {'b': 1}} }}|{{ {'a': 1}['a'] }}
a {%- if t -%} b {%- endif -%} c|a {{- n -}} b|a {#- c -#} b|{{ n -}}   z
{{ 'a\nb\t\'\"\\ \x41 \u00e9 \q' }}|{{ "it's" }}|{{ 'a' 'b' }}|{{ ["it's", 'say "x"', 'both \' "'] }}
{{ s.upper() }}|{{ s.lower() }}|{{ s.title() }}|{{ 'hELLO wORLD'.capitalize() }}|{{ "they're 3rd".title() }}|{{ s.startswith('He') }}|{{ s.endswith(('x', 'ld')) }}|{{ s.find('o') }}|{{ s.rfind('o') }}|{{ s.find('z') }}|{{ s.count('l') }}|{{ s.replace('l', 'L') }}|{{ s.replace('l', 'L', 1) }}|{{ 'ab'.replace('', '-') }}
{{ '  a b  '.strip() }}|{{ '  a '.lstrip() }}|{{ ' a  '.rstrip() }}.|{{ 'xxaxx'.strip('x') }}|{{ '\n\ta\n'.strip('\n') }}|{{ 'abc'.strip('ca') }}|{{ u.strip('d\U0001f680') }}
{{ 'a,b,,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a  b '.split() }}|{{ 'a b c'.split(None, 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ ''.split(',') }}|{{ ''.split() }}|{{ 'a</x>b'.split('</x>')[-1] }}|{{ 'a\nb\r\nc\n'.splitlines() }}
{{ 'abc'.split('') }}
{{ ','.join(['a', 'b']) }}|{{ ', '.join(words) }}|{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}|{{ '12'.isdigit() }}|{{ 'ab'.isalpha() }}|{{ ' '.isspace() }}|{{ 'é'.upper() }}|{{ 'ß'.upper() }}|{{ 'É'.lower() }}
{{ s | upper }}|{{ s | lower }}|{{ 'a b-c (d' | title }}|{{ 'abC' | capitalize }}|{{ ' x ' | trim }}|{{ 'xax' | trim('x') }}|{{ n | string }}|{{ 'a-b' | replace('-', '+') }}|{{ 5 | replace('5', '6') }}
{{ '5' | int }}|{{ 'x' | int }}|{{ 'x' | int(9) }}|{{ '5.7' | int }}|{{ 5.7 | int }}|{{ ' 12 ' | int }}|{{ none | int }}|{{ '5.5' | float }}|{{ 'x' | float }}|{{ 3 | float }}|{{ -5 | abs }}|{{ 2.567 | round(2) }}|{{ 2.5 | round }}|{{ 2.1 | round(0, 'ceil') }}|{{ true | int }}
{{ l | length }}|{{ u | length }}|{{ d | length }}|{{ s | count }}|{{ l | first }}|{{ l | last }}|{{ 'abc' | first }}|{{ [] | first }}x|{{ l | list }}|{{ 'ab' | list }}|{{ d | list }}
{{ 5 | length }}
{{ l | sort }}|{{ l | sort(reverse=true) }}|{{ words | sort }}|{{ words | sort(case_sensitive=true) }}|{{ people | sort(attribute='age') | map(attribute='name') | join(',') }}|{{ l | reverse | list }}|{{ 'abc' | reverse }}|{{ [1, 'a'] | sort }}
{{ l | max }}|{{ l | min }}|{{ l | sum }}|{{ people | sum(attribute='age') }}|{{ words | max }}|{{ words | unique | list }}|{{ [1, 1, 2] | unique | list }}|{{ l | join('-') }}|{{ people | join(', ', attribute='name') }}|{{ [] | sum }}
{{ people | map(attribute='name') | list }}|{{ people | map(attribute='tags', default='-') | list }}|{{ words | map('upper') | join }}|{{ ['a-b'] | map('replace', '-', '+') | list }}|{{ people | map(attribute='tags.0') | list | length }}
{{ people | selectattr('tags') | map(attribute='name') | list }}|{{ people | selectattr('age', 'equalto', 31) | map(attribute='name') | list }}|{{ people | rejectattr('age', 'gt', 10) | map(attribute='name') | list }}|{{ people | selectattr('tags', 'defined') | list | length }}|{{ l | select('odd') | list }}|{{ l | reject('in', [1, 2]) | list }}|{{ [0, 1, ''] | select | list }}
{{ d | dictsort }}|{{ d | dictsort(reverse=true) | first }}|{{ [1, 2, 3] | batch(2) | list }}|{{ [1, 2, 3] | batch(2, 0) | list }}|{{ d | items | list | length }}|{{ people[0] | attr('name') }}x
{{ 5 | items | list }}
{{ d | tojson }}|{{ nested | tojson }}|{{ u | tojson }}|{{ '<&>\u2028' | tojson }}|{{ 1.0 | tojson }}|{{ none | tojson }}|{{ [] | tojson }}|{{ {} | tojson }}|{{ (1, 2) | tojson }}|{{ {1: 2, true: 3} | tojson }}
{{ d | tojson(indent=2) }}|{{ [1, [], {}] | tojson(indent=1) }}|{{ d | tojson(separators=(',', ':')) }}|{{ u | tojson(ensure_ascii=true) }}|{{ d | tojson(sort_keys=true) }}|{{ d | tojson(indent=0) }}
{{ missing | tojson }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb\n' | indent(1, blank=true) }}|{{ 'a\nb' | indent('>>') }}
{{ '<a>' | escape }}|{{ '<a>' | e }}|{{ '<a>' | safe }}|{{ '<a>' | safe + '<b>' }}|{{ '<b>' ~ ('<a>' | e) }}|{{ '%s-%d' | format('a', 3) }}|{{ '%s%%' % 5 }}|{{ '%s %s' % ('a', 2) }}
{{ n is odd }}|{{ n is even }}|{{ n is divisibleby 7 }}|{{ n is divisibleby(2) }}|{{ n is number }}|{{ f is float }}|{{ n is integer }}|{{ t is integer }}|{{ t is boolean }}|{{ s is string }}|{{ d is mapping }}|{{ l is mapping }}|{{ l is sequence }}|{{ s is sequence }}|{{ d is iterable }}|{{ n is iterable }}|{{ n is not string }}
{{ n is eq 7 }}|{{ n is equalto(7) }}|{{ n is lt 9 }}|{{ n is in [7] }}|{{ t is true }}|{{ 1 is true }}|{{ t is false }}|{{ no is sameas none }}|{{ 'a' is lower }}|{{ 'A' is upper }}|{{ missing is none }}|{{ range is callable }}|{{ n is ne 7 }}|{{ n is ge 7 }}
{{ n is unknown }}
{{ s | unknown }}
{% if false %}{{ s | unknown }}{% endif %}ok
{{ 'a' if n is defined and s is string else 'b' }}|{{ not n is defined }}|{{ n is defined == true }}|{{ l | length > 2 }}|{{ l | length == 3 and true }}|{{ (n, s) | length }}
{{ range(3) | list }}|{{ range(1, 4) | list }}|{{ range(5, 0, -2) | list }}|{% for i in range(2) %}{{ i }}{% endfor %}|{{ dict(a=1) }}|{{ dict({'b': 2}, a=1) }}|{{ range(0) | list }}
{{ range(1000000) | list }}
{{ range(1, 2, 0) }}
{{ l.append(4) }}
{{ d.update({'x': 1}) }}
{{ d.pop('b') }}
{{ s.nothing() }}
{{ s() }}
{{ raise_exception('stop here') }}
{{ strftime_now('%Y-%m-%d %d %B %b %A %a %H:%M:%S %j %p %I %y %%') }}
{% include 'x' %}
{% if n %}
{{ n
{% endif %}
{{ 1 2 }}
{{ [1, }}
{% for %}{% endfor %}
{% break %}
{{ 'abc }}
{{ (1 }}
{{ n | }}
{% set %}
{% macro %}{% endmacro %}
{# no end
{{ 99999999999 * 99999999 }}|{{ 1_000 }}|{{ 0 }}|{{ 007 if false else 1 }}
{{ "a" "b" | upper }}|{{ ("a" ~ "b") | upper }}|{{ "a" ~ "b" | upper }}
{{ [1, 2, 3,] }}|{{ {'a': 1,} }}|{{ (1,) }}|{{ () }}|{{ [] }}|{{ {} }}|{{ [[]] }}|{{ (1, 'a') }}
{{ people[0]['name'][0] | lower }}|{{ people | map(attribute='name') | map('lower') | sort | join('/') }}|{{ (people | selectattr('name', 'equalto', 'bob') | first).age }}
{% set x = [1, 2] %}{% set y = x + [3] %}{{ x }}{{ y }}|{{ x is sameas x }}|{{ x == [1, 2] }}|{{ {'a': [1]} == {'a': [1]} }}|{{ [1] != [2] }}
{% for m in people %}{% if loop.first %}F{% endif %}{{ m.name }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}
{%- set messages = people[1:] -%}{{ messages | length }}{% set role = 'x' if messages[0].name == 'bob' else 'y' %}{{ role }}
{{ namespace(a=1).a }}|{{ 'x' if namespace else 'y' }}|{{ true if [] else false }}|{{ none }}|{{ True }}|{{ None }}|{{ False }}
{%+ if t %}a{%+ endif %}|  {%+ if t +%} b {% endif +%} c
"""

MULTI_LINE = [
    "a\n", "a\n\n", "\n", "", "a\r\nb\rc\r\n", "  {% if t %}\n  x\n  {% endif %}\ny\n", "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend",
    "  {# c #}\n  a", "a  {% if t %}  \n b\n   {%- endif %}\nc", "{%- if t %}\n\n x {%- endif -%}\n\n y", "  {{ n }}\n  {{ n }}\n", "{% if t %} {% endif %}\n\n{% if t %}\tz\n{% endif %}",
    "x\n  {%+ if t %}\n  y{% endif %}", "{% if t %}\n  {% if t %}\n    a\n  {% endif %}\n{% endif %}\n", "{% raw %}\n {{ a }} \n{% endraw %}\nb", "a\n {%- raw -%} \n x \n {%- endraw -%} \n b",
    "{{ '''a''' }}", "{% set x %}\n  a\n{% endset %}\n[{{ x }}]", "{% macro m() %}\n  a\n{% endmacro %}\n[{{ m() }}]", "\t{% if t %}\t\n\ta\n\t{% endif %}\t\nb", "{{ n }}\n{# a\n b #}\n  {# c -#}\n  d",
    "{%- for x in l -%}\n  {{- x -}}\n{%- endfor -%}\n", "{{ 'a' -}}\n\n  {% if t %} b {% endif %}", "a\u00a0{%- if t %}b{% endif %}",
]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(text):
    from datetime import datetime, timezone
    return datetime.fromtimestamp(1721952000, timezone.utc).strftime(text)


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    cases = []
    for text in [line for line in TEMPLATES.split("\n") if line] + MULTI_LINE + ["{% generation %}a{% endgeneration %}b"]:
        case = {"template": text}
        try:
            case["expected"] = environment.from_string(text).render(**CONTEXT)
        except Exception as error:
            case["error"] = f"{type(error).__name__}: {error}"
        cases.append(case)
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"context": CONTEXT, "cases": cases}, out, indent=1)
        out.write("\n")


main()
