-- shop.db is what SQLite makes of this file:
--   rm -f shop.db && python3 -c "import sqlite3; sqlite3.connect('shop.db').executescript(open('shop.sql').read())"
pragma page_size = 512;
create table customer (id integer primary key, name text);
create table "or""der" (id integer primary key, customer integer references customer(id), total real);
insert into customer values (1, 'Ada'), (2, 'line
break');
create view big as select * from "or""der" where total > 10;
