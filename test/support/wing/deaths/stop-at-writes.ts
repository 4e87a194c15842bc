// Preloaded into a daemon, which stops (SIGSTOP) before each write to its registry while the file STOP_WHILE exists.
import { existsSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'

const { exec } = DatabaseSync.prototype
DatabaseSync.prototype.exec = function (statement) {
  if (statement === 'BEGIN IMMEDIATE' && existsSync(process.env.STOP_WHILE ?? ''))
    process.kill(process.pid, 'SIGSTOP')
  exec.call(this, statement)
}
