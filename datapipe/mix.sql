-- in:  documents, counted (doc, tokens); $limit, the tokens that are taken of a document at most
-- out: train documents of each source with their targets, before copies
select d.source, count(*) as documents, sum(least(c.tokens, $limit) - 1)::bigint as targets
from documents d join counted c using (doc)
where d.place is null and d.split = 'train' and c.tokens > 0
group by d.source
order by d.source
