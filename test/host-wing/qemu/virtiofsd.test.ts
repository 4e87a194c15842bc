import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { watch, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { shareFolder } from '../../../src/host/qemu/virtiofsd.ts'
import { processState } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** A fake daemon: writes its pid to a file, waits while the gate exists, and makes its socket file. */
const DAEMON = `#!/bin/sh
socket=\${1#--socket-path=}
echo $$ >> "$socket.started"
if [ -p "$socket.gate" ]; then read -r go < "$socket.gate"; fi
: > "$socket"
exec sleep 60
`

describe('shareFolder', () => {
  let folder: string
  let socket: string
  let program: string

  beforeEach(() => {
    folder = temporaryFolder()
    socket = join(folder, 'fs.sock')
    program = join(folder, 'daemon')
    writeFileSync(program, DAEMON, { mode: 0o755 })
  })

  it('ends the daemon', async () => {
    const share = await shareFolder(folder, socket, program)
    await share.close()
    expect(started().filter((pid) => processState(pid) !== undefined)).toEqual([])
  })

  it('ends a daemon that is just starting for the next guest', async () => {
    const share = await shareFolder(folder, socket, program)
    execFileSync('mkfifo', [`${socket}.gate`])
    const changes = watch(folder)
    for (const pid of started()) process.kill(pid)
    for await (const _ of changes) if (started().length === 2) break
    const closing = share.close()
    await writeFile(`${socket}.gate`, 'go\n')
    await closing
    expect(started().filter((pid) => processState(pid) !== undefined)).toEqual([])
  })

  const started = () => readFileSync(`${socket}.started`, 'utf8').trim().split('\n').map(Number)
})
