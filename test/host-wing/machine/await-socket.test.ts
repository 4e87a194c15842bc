import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import type { HeldChild, Holder } from '../../../src/host/instance/holder/holder.ts'
import { awaitSocket, explainDaemon } from '../../../src/host/instance/machine/await-socket.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** Binds its socket, says so, and listens once it is told. */
const SERVER = `use Socket; $| = 1; chdir shift; socket S, AF_UNIX, SOCK_STREAM, 0;
bind S, sockaddr_un("a b.sock") or die; print "bound\\n"; <STDIN>; listen S, 1; <STDIN>`

describe('awaitSocket', () => {
  let server: ChildProcess
  let listeners: ((child: HeldChild) => void)[]

  afterEach(() => endChild(server, 'SIGKILL'))

  const child = (exit?: HeldChild['exit']) => ({ name: 'server', pid: server.pid ?? 0, exit })

  /** Waits for a server's socket; `onBound` is called before the daemon looks whether it listens. */
  function start({ onBound = () => {}, ms = 20_000 }) {
    const folder = temporaryFolder()
    listeners = []
    const holder = {
      onExit: (listener: (child: HeldChild) => void) => {
        listeners.push(listener)
        return () => {}
      },
      ended: new Promise(() => {}),
    } as unknown as Holder
    const path = join(folder, 'a b.sock')
    const waited = awaitSocket(path, { holder, name: 'server', log: '/nowhere', ms }, async () => {
      server = spawn('perl', ['-e', SERVER, folder], { stdio: ['pipe', 'pipe', 'inherit'] })
      await once(server.stdout ?? server, 'data')
      onBound()
      return child()
    })
    return { path, waited }
  }

  it('waits until the process listens, which is later than its socket is there', async () => {
    const { path, waited } = start({ onBound: () => server.stdin?.write('\n') })
    await expect(waited).resolves.toBeUndefined()
    const client = connect(path)
    await once(client, 'connect')
    client.destroy()
  })

  it('gives up a process that does not listen, or ends', async () => {
    await expect(start({ ms: 100 }).waited).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: 'server: made no socket within 100 ms',
    })
    await endChild(server, 'SIGKILL')
    const ending = start({
      onBound: () => listeners.forEach((tell) => void tell(child({ code: 3, signal: undefined }))),
    })
    await expect(ending.waited).rejects.toThrow('server: ended with status 3 before it made its socket')
  })
})

describe('explainDaemon', () => {
  it.each([
    [
      '--blockdev {"driver":"https","url":"https://host/a}: b","read-only":true}: Unknown driver \'https\'',
      'backends.disk0: this host has no disks by https; ./microvm doctor names the package',
    ],
    [
      '--blockdev {"driver":"https","url":"https://host/a","read-only":true}: CURL: Error opening file: 401',
      'backends.disk0: CURL: Error opening file: 401',
    ],
    ['nbd-1: made no socket within 5 ms', 'backends.disk0: nbd-1: made no socket within 5 ms'],
  ])('%s', (text, told) => {
    const error = new AgentError('UNAVAILABLE', text)
    expect(explainDaemon(error, { key: 'disk0', name: 'nbd-1', isRoutable: false })).toMatchObject({
      message: told,
    })
  })
})
