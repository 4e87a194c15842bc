import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectSocket } from '../../../src/client/connection/connect-socket.ts'
import { hybridHandshake } from '../../../src/client/connection/dial.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { listenForOne, type OneConnection } from '../../support/host/host-ports.ts'
import { parseLogLine } from '../../support/log-lines.ts'
import { processes } from '../../support/processes.ts'
import { dialFromContainer } from '../../support/programs/vsock-dial.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { guestSocketIn } from '../../support/vm/dial-guest.ts'
import { bootPod, consoleLine, ROOT } from '../../support/vm/guest-pod.ts'
import { ctlInGuest } from './ctl-in-guest.ts'

const SIGPIPE = 13
const LISTENER = 1027
const DAEMON = 'vhost-device-vs'

describe.skipIf(cannotBoot() !== undefined)('standard streams over vsock ports of the host', () => {
  let guest: TestGuest
  let pod: Pod
  beforeAll(async () => {
    ;({ guest, pod } = await bootPod({ append: [CRUN], vsock: 'vhost-user' }))
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(() => guest?.stop())

  const listen = (port: number): Promise<OneConnection> =>
    listenForOne(`${guestSocketIn(guest.folder)}_${port}`)

  it('of a container carry exactly its output, and end with it', async () => {
    const [stdout, stderr] = [await listen(5002), await listen(5003)]
    const init = await pod.run('exact', ['sh', '-c', 'printf out; printf error >&2; exit 5'], {
      ports: { stdoutPort: 5002, stderrPort: 5003 },
    })
    expect((await Promise.all([stdout.all(), stderr.all()])).map(String)).toEqual(['out', 'error'])
    expect(await init.wait()).toBe(5)
    await pod.remove('exact')
  })

  it('pass many bytes both ways', async () => {
    const [stdin, stdout] = [await listen(5011), await listen(5012)]
    const ports = { stdinPort: 5011, stdoutPort: 5012 }
    const added = await pod.add('host', 'cat', ['cat'], { ports })
    const bytes = randomBytes(4 * 1024 * 1024)
    const output = stdout.all()
    ;(await stdin.connection).end(bytes)
    expect((await output).equals(bytes)).toBe(true)
    expect(await added.wait()).toBe(0)
  })

  it('give the process SIGPIPE when the reader goes away', async () => {
    const stdout = await listen(5013)
    const script = 'while echo tick; do usleep 100000; done'
    const added = await pod.add('host', 'ticks', ['sh', '-c', script], { ports: { stdoutPort: 5013 } })
    const connection = await stdout.connection
    await readUntil(connection, 'tick\n')
    connection.destroy()
    expect(await added.wait()).toBe(128 + SIGPIPE)
  })

  it('of a terminal go both ways on one connection, and hang it up when that is closed', async () => {
    const both = await listen(5014)
    const added = await pod.add('host', 'tty', ['sh', '-c', 'stty size; read line; sleep 1000'], {
      terminal: true,
      ports: { stdinPort: 5014, stdoutPort: 5014 },
    })
    const connection = await both.connection
    await readUntil(connection, '33 77\r\n')
    connection.write('typed\r')
    await readUntil(connection, 'typed\r\n')
    connection.destroy()
    expect(await added.wait()).toBe(128 + 1)
  })

  it('where no process listens fail with the port’s number, and the id is free again', async () => {
    await expect(pod.create('refused', ['true'], { ports: { stdoutPort: 5999 } })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(
        /^stdout: port 5999 of the host: no listener: .*(ECONNRESET|ETIMEDOUT|no answer within 2 s)/,
      ),
    })
    expect(await pod.output('refused', 'echo again')).toBe('again\n')
  })

  /** Comes last, because the guest powers off. */
  it('have ended when DestroySandbox is answered, also to a host that reads the answer only after the agent has stopped', async () => {
    const daemon = processes().find(({ name, parent }) => name === DAEMON && parent === process.pid)?.pid
    if (daemon === undefined) throw new Error(`no ${DAEMON}`)
    const Path = `${ROOT}/bin/busybox`
    const hook = { Path, Args: ['sh', '-c', `echo leaving > /dev/console; ${Path} sleep 2`] }
    await pod.run('last', ['sleep', '1000'], { spec: { Hooks: { Poststop: [hook] } } })
    const answered = guest.agent.destroySandbox({})
    answered.catch(() => {})
    await consoleLine(guest, /^leaving/)
    process.kill(daemon, 'SIGSTOP')
    try {
      await consoleLine(guest, /"msg":"stopped"/)
      await Promise.race([guest.guest.vm.exited, sleep(1000)])
    } finally {
      process.kill(daemon, 'SIGCONT')
    }
    await answered
    expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
  })
})

describe.skipIf(cannotBoot() !== undefined)('a guest with agent.passfd_listener_port and loopback', () => {
  let guest: TestGuest
  let pod: Pod
  beforeAll(async () => {
    const append = [
      CRUN,
      `agent.passfd_listener_port=${LISTENER}`,
      'agent.vsock_allow_loopback',
      'agent.log=debug',
    ]
    ;({ guest, pod } = await bootPod({ vsock: 'vhost-user', append }))
  })
  afterAll(() => guest?.stop())

  it('uses the connection that its host made, by the port it came from', async () => {
    const stdout = await connectToListener(guest)
    const init = await pod.run('claimed', ['cat'], { ports: { stdoutPort: stdout.port } })
    await init.write('through')
    await init.closeStdin()
    expect((await buffer(stdout.socket)).toString()).toBe('through')
    expect(await init.wait()).toBe(0)
    await expect(pod.create('unclaimed', ['true'], { ports: { stdinPort: 78 } })).rejects.toThrow(
      'the host has made no connection from its port 78',
    )
  })

  it('answers processes of its own guest', async () => {
    const dialling = await dialFromContainer(pod)
    const answer = await dialling.read('stdout')
    expect(answer.subarray(4, 9)).toEqual(Buffer.from([0, 0, 0, 1, 2]))
    expect((await dialling.read('stderr')).toString()).toBe('connected\n')
    await pod.remove('dial')
  })

  it('answers agent-ctl over vsock, which names a port without a listener', async () => {
    const ctl = await ctlInGuest(pod)
    const ps = await ctl('vsock://1:1024', ['ps', 'tool'])
    expect(ps).toMatchObject({ status: 0, stderr: '', stdout: expect.stringMatching(/^tool +\d+ +init /m) })
    const exec = ['exec', '-i', 'tool', 'sh', '-c', 'cat; echo error >&2; exit 7']
    expect(await ctl('vsock://1:1024', exec, 'in\n')).toEqual({
      status: 7,
      stdout: 'in\n',
      stderr: 'error\n',
    })
    expect(await ctl('vsock://1:1999', ['ps'])).toEqual({
      status: 125,
      stdout: '',
      stderr:
        'agent-ctl: vsock://1:1999: the connection is refused; check the port, or wait for the agent with --wait\n',
    })
    await pod.remove('tool')
  })
})

async function connectToListener(guest: TestGuest): Promise<{ socket: Socket; port: number }> {
  const signal = AbortSignal.timeout(10_000)
  const socket = await connectSocket({ path: guestSocketIn(guest.folder) }, signal)
  await hybridHandshake(socket, LISTENER, signal)
  const { port } = parseLogLine(await consoleLine(guest, /"connection for a stream waits"/))
  return { socket, port: Number(port) }
}

async function readUntil(socket: Socket, text: string): Promise<string> {
  let read = ''
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    read += String(chunk)
    if (read.includes(text)) break
  }
  return read
}
