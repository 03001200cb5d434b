"""One executed notebook as one HTML file: no request, no script, MathML for every formula.

`mathml` turns TeX into MathML, `markdown` renders Markdown with it, `structure` orders the
cells' HTML into an article, `page` puts the shell (head, stylesheet, contents) around it, and
`exporter` is the nbconvert exporter that runs them in this order.
"""
