-- in: linked (doc, "group"), documents
-- out: doc: linked documents in a line, link group after link group, each in order of staying
select l.doc
from linked l
join documents d on d.doc = l.doc
order by l."group", {staying}
