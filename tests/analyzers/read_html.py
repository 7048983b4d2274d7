#!/usr/bin/env python3
"""Reads an HTML report as a program that did not write it, and prints what it says as JSON.

usage: read_html.py FILE      exit 0: read, 1: it is not as it has to be, each fault on a line of stderr

Faults: what is no XML (so that every tag is closed and every attribute quoted), an id that is there twice, a reference to anything
outside the file, a style or a handler in an attribute, and a style or a script that the content security policy would not run.
"""

import base64
import hashlib
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

FOREIGN = ("src", "srcset", "data", "action", "formaction", "poster", "background", "style", "ping", "xlink:href")
KNOWN = set("""html head meta title style body header a span nav button main section p h1 h2 h3 dl div dt dd article strong ul ol li code pre
details summary small table thead tbody tr th td svg path rect line text g footer script""".split())


def words(element):
    return "".join(element.itertext())


def own_text(element, skip=("title",)):
    """Of a piece of SVG, what stands in it without its tooltips."""
    return (element.text or "") + "".join(("" if child.tag in skip else own_text(child)) + (child.tail or "") for child in element)


def main():
    with open(sys.argv[1], "rb") as file:
        document = file.read().decode("utf-8", "strict")
    faults = []
    # What stands in these two is ours and no XML.
    inside = {}
    for tag in ("style", "script"):
        found = re.findall(f"<{tag}>(.*?)</{tag}>", document, re.S)
        if len(found) != 1:
            faults.append(f"{len(found)} elements <{tag}>")
        inside[tag] = found[0] if found else ""
        document = document.replace(inside[tag], "", 1)
    if not document.startswith("<!DOCTYPE html>\n<html lang=\"en\">"):
        faults.append("no doctype with a language")
    root = ElementTree.fromstring(document.split("\n", 1)[1])
    ids, tags = set(), {}
    for element in root.iter():
        tags[element.tag] = tags.get(element.tag, 0) + 1
        if element.tag not in KNOWN and not (element.tag == "title"):
            faults.append(f"an element <{element.tag}>")
        for name, value in element.attrib.items():
            if name in FOREIGN or name.startswith("on"):
                faults.append(f"{name}={value!r}")
            if name == "href" and not value.startswith("#"):
                faults.append(f"a link to {value!r}")
            if name == "id":
                if value in ids:
                    faults.append(f"id {value!r} twice")
                ids.add(value)
    for link in root.iter("a"):
        if link.get("href")[1:] not in ids:
            faults.append(f"a link to {link.get('href')!r}, which is not there")
    metas = {meta.get("http-equiv") or meta.get("name") or "charset": meta.get("content") or meta.get("charset") for meta in root.iter("meta")}
    policy = metas.get("Content-Security-Policy", "")
    for tag in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(inside[tag].encode()).digest()).decode()
        if f"{tag}-src 'sha256-{digest}'" not in policy:
            faults.append(f"the policy does not let its {tag} run")
    if not policy.startswith("default-src 'none';"):
        faults.append(f"policy {policy!r}")
    for fault in faults:
        print(fault, file=sys.stderr)

    def of_class(name, within=root):
        return [element for element in within.iter() if name in element.get("class", "").split()]

    tables = []
    for card in of_class("table"):
        heads = [[own_text(cell) for cell in row] for row in card.iter("tr")] if card.find(".//table") is not None else []
        tables.append({"title": words(card.find("h3")), "rows": heads, "scale_column": card.get("data-scale-column"),
                       "left_out": [words(p) for p in of_class("left-out", card)],
                       "values": [[cell.get("data-v") for cell in row] for row in card.iter("tr")]})
    plots = []
    for card in of_class("plot"):
        plots.append({
            "title": words(card.find("h3")), "classes": card.get("class"), "text": words(card),
            "lines": [path.attrib for path in card.iter("path") if path.get("data-x")],
            "bars": [svg.attrib for svg in of_class("bars", card)], "cells": [svg.attrib for svg in of_class("cells", card)],
            "grid": [svg.attrib for svg in of_class("grid-cells", card)],
            "named": [div.attrib for div in of_class("named", card)],
            "names": [words(span) for span in of_class("name", card)],
            "nodes": [{"title": words(g.find("title")), "marked": "marked" in g.get("class"), "y": float(g.find("rect").get("y")),
                       "x": float(g.find("rect").get("x"))} for g in of_class("node", card)],
            "links": len(of_class("link", card)), "marks": len(of_class("mark", card)), "bands": len(of_class("band", card)),
            "limits": len([line for line in card.iter("line") if line.get("class") == "limit"])})
    print(json.dumps({
        "title": words(root.find("head/title")), "tags": tags, "metas": metas, "text": words(root.find("body")),
        "verdict": [words(section) for section in of_class("verdict")],
        "findings": [{"title": words(article.find("h3")), "text": words(article), "classes": article.get("class"),
                      "folded": len([1 for details in article.findall("details") if details.get("class") == "folded"])}
                     for article in of_class("finding")],
        "facts": {words(pair.find("dt")): words(pair.find("dd")) for pair in root.findall(".//dl/div")},
        "tables": tables, "plots": plots}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
