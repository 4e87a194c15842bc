import { DatabaseSync } from 'node:sqlite'
import './rpc-bare-server.ts'

/** The server of rpc-bare-server.ts with what a daemon has besides: the addon of argument 2, and a database that it has written to. */
const [, , socket = '', addon = ''] = process.argv
process.dlopen({ exports: {} }, addon)
const database = new DatabaseSync(`${socket}.sqlite`)
database.exec(
  'PRAGMA journal_mode = WAL; CREATE TABLE calls (id INTEGER PRIMARY KEY); INSERT INTO calls VALUES (1)',
)
process.once('exit', () => database.close())
