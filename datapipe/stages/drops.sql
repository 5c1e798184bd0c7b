-- in: {pairs} (doc, kept, value double, shown varchar), documents;  ?: the rule
-- out: {table} (doc, rule, value, evidence, decides, kept); evidence is canonical JSON
insert into {table}
select p.doc, ?, p.value,
       '{"jaccard":' || p.shown || ',"kept":"' || hex32(k.doc_id) || '"}', true, p.kept
from {pairs} p
join documents k on k.doc = p.kept
order by p.doc
