-- in:  taken (doc, copies, tokens), documents, source_numbers (source, number); $split, $limit
-- out: kept documents of a split, with the tokens that are taken of each and how many lie before it in order of doc
select d.part, d.row, d.doc, hex32(d.doc_id) as doc_id, s.number as source, t.copies,
       least(t.tokens, $limit) as tokens, t.tokens as whole,
       (sum(least(t.tokens, $limit)) over (order by d.doc) - least(t.tokens, $limit))::bigint as before
from taken t join documents d using (doc) join source_numbers s using (source)
where d.place is null and d.split = $split and t.copies > 0
order by d.part, d.row
