def _cubby_describe(path):
    import json, sqlite3
    from pathlib import Path

    out = []
    db = sqlite3.connect(Path(path).resolve().as_uri() + "?mode=ro&immutable=1", uri=True)
    db.text_factory = lambda b: b.decode("utf-8", "replace")
    name = lambda s: '"' + s.replace('"', '""') + '"'
    tables = db.execute(
        "select name, type from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%' "
        "order by type, name limit 61"
    ).fetchall()
    for table, kind in tables[:60]:
        t = {"name": table[:200], "kind": kind, "columns": [], "rows": -1, "keys": [], "first": []}
        out.append(t)
        try:
            for c in db.execute("pragma table_info(%s)" % name(table)).fetchmany(60):
                t["columns"].append({"name": c[1][:200], "type": c[2][:200], "key": bool(c[5])})
            for k in db.execute("pragma foreign_key_list(%s)" % name(table)).fetchmany(60):
                t["keys"].append({"from": str(k[3])[:200], "table": str(k[2])[:200], "to": str(k[4] or "")[:200]})
            if kind == "table":
                t["rows"] = db.execute("select count(*) from %s" % name(table)).fetchone()[0]
            t["first"] = [[str(v)[:200] for v in row[:60]] for row in db.execute("select * from %s limit 2" % name(table))]
        except sqlite3.Error as e:
            t["error"] = str(e)[:200]
    db.close()
    Path(path).unlink()
    print("\nMARKER" + json.dumps({"tables": out, "more": len(tables) > 60}))


_cubby_describe("PATH")
del _cubby_describe
