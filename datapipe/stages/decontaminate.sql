-- in: eval_rules (doc, suite, class, rank, value, evidence): what documents hold;  eval_classes (class): for which they
--     leave;  documents
-- out: decontaminate_drops: a row for each suite and class of a training document; the most telling class decides,
--      then the larger value
create or replace table decontaminate_drops as
select r.doc, 'holds ' || r.suite || ' (' || r.class || ')' as rule, r.value, r.evidence,
    row_number() over (partition by r.doc order by r.rank, r.value desc, r.suite) = 1 as decides
from eval_rules r
join eval_classes using (class)
join documents d using (doc)
where d.split is distinct from 'validation'
order by r.doc, r.rank, r.suite
