"""What a page holds, read by a parser and a browser that know nothing of ours."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "wbr"}
OVERLAPPING = """
[...document.querySelectorAll('svg.plot')].flatMap(plot => {
  const texts = [...plot.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([, q]) =>
    p.left + 1 < q.right && q.left + 1 < p.right && p.top + 3 < q.bottom && q.top + 3 < p.bottom
  ).map(([b]) => a + ' on ' + b));
})
"""
"""The texts of a figure that lie on each other."""


class Page(HTMLParser):
    """Fails where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.attributes, self.rows, self.text = [], [], [], [], ""
        self.feed(text)
        assert self.open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if self.open and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def row(self, label):
        return next(row for row in self.rows if row and row[0] == label)
