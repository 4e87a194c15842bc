import { createHash, randomBytes } from 'node:crypto'
import { existsSync, writeFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'

const MIB = 1024 * 1024
const END_OF_TRANSMISSION = '\x04'

describe('standard streams over RPCs', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(() => pod.stop())

  it('of a container return exactly what was written, then the end, as often as they are read', async () => {
    const init = await pod.run('exact', ['sh', '-c', 'printf out; printf error >&2'])
    expect((await init.readAll('stdout')).toString()).toBe('out')
    expect((await init.readAll('stderr')).toString()).toBe('error')
    expect(await init.read('stdout')).toHaveLength(0)
    expect(await init.read('stderr')).toHaveLength(0)
    expect(await init.wait()).toBe(0)
    await pod.remove('exact')
    expect(leftoversOf(pod.started, 'exact').bundles).toEqual([])
  })

  // The end of input after 0 bytes, after 1, around the 65,536 bytes that a pipe holds, and after many times that.
  it.each([0, 1, 65_535, 65_536, 65_537, 64 * MIB])('pass %i bytes and the end of input', async (count) => {
    const bytes = randomBytes(count)
    const added = await pod.add('host', `in-${count}`, ['cat'])
    const output = added.readAll()
    for (let sent = 0; sent < count; sent += MIB) await added.write(bytes.subarray(sent, sent + MIB))
    await added.closeStdin()
    expect(Buffer.compare(await output, bytes)).toBe(0)
    expect(await added.wait()).toBe(0)
  })

  it('pass a long write to a terminal whole', async () => {
    const bytes = randomBytes(300_000)
    const script = 'stty raw -echo; echo ready; head -c 300000 | sha256sum'
    const added = await pod.add('host', 'long-terminal', ['sh', '-c', script], { terminal: true })
    await added.readUntil('ready')
    await added.write(bytes)
    expect(await added.readUntil('-')).toContain(createHash('sha256').update(bytes).digest('hex'))
    expect(await added.wait()).toBe(0)
  })

  it('take an empty write as the end of input', async () => {
    const added = await pod.add('host', 'empty-write', ['cat'])
    await added.write('text')
    await added.write('')
    expect((await added.readAll()).toString()).toBe('text')
    expect(await added.wait()).toBe(0)
  })

  it('keep concurrent writes whole and in order', async () => {
    const added = await pod.add('host', 'order', ['cat'])
    const pieces = Array.from({ length: 40 }, (_, number) => Buffer.alloc(20_000, number))
    const writing = Promise.all([...pieces.map((piece) => added.write(piece)), added.closeStdin()])
    expect(Buffer.compare(await added.readAll(), Buffer.concat(pieces))).toBe(0)
    await writing
    await added.wait()
  })

  it('return pieces of the requested length', async () => {
    const added = await pod.add('host', 'pieces', ['printf', 'abcdefgh'])
    const key = { containerId: 'host', execId: 'pieces' }
    const { data: three } = await pod.agent.readStdout({ ...key, len: 3 })
    expect(Buffer.from(three).toString()).toBe('abc')
    expect((await pod.agent.readStdout({ ...key, len: 0 })).data).toHaveLength(0)
    const { data: rest } = await pod.agent.readStdout({ ...key, len: 0xffff_ffff })
    expect(Buffer.from(rest).toString()).toBe('defgh')
    expect(await added.read()).toHaveLength(0)
    await added.wait()
  })

  it('return pieces of a mebibyte on request', async () => {
    const bytes = randomBytes(3 * MIB)
    const added = await pod.add('host', 'large', ['cat'])
    const writing = added.write(bytes).then(() => added.closeStdin())
    const pieces: Buffer[] = []
    do pieces.push(await added.read('stdout', 4 * MIB))
    while (pieces.at(-1)?.length !== 0)
    await writing
    expect(Buffer.concat(pieces).equals(bytes)).toBe(true)
    await added.wait()
  })

  it('return at once all that a process has written since a read asked for more than 64 KiB', async () => {
    const script = 'echo ready; read go; head -c 524288 /dev/zero; echo written >&2'
    const added = await pod.add('host', 'enlarged', ['sh', '-c', script])
    expect((await added.read('stdout', 4 * MIB)).toString()).toBe('ready\n')
    await added.write('go\n')
    expect((await added.read('stderr')).toString()).toBe('written\n')
    expect(await added.read('stdout', 4 * MIB)).toHaveLength(524_288)
    await added.wait()
  })

  it('lose nothing when a reader times out or hangs up', async () => {
    const added = await pod.add('host', 'late', ['sh', '-c', 'read line; echo "$line"'])
    const key = { containerId: 'host', execId: 'late', len: 100 }
    const late = { code: 'DEADLINE_EXCEEDED' }
    await expect(pod.agent.readStdout(key, { timeoutMs: 20 })).rejects.toMatchObject(late)
    // The client's own clock ended the call. Once the agent has ended a later call, it has ended this one too.
    await expect(pod.agent.waitProcess(key, { timeoutMs: 20 })).rejects.toMatchObject(late)
    await pod.started.logged({ rpc: 'grpc.AgentService/WaitProcess', ...late })
    const other = await pod.started.connect()
    const lost = other.agent.readStdout(key).catch((error: unknown) => error)
    await other.health.check({})
    other.close()
    expect(await lost).toMatchObject({ code: 'UNAVAILABLE' })
    // Until the agent has seen the hang-up, it may still send a reply on that connection.
    await hungUp(pod)
    await added.write('kept\n')
    expect((await added.readAll()).toString()).toBe('kept\n')
    await added.wait()
  })

  it('keep for the next reader what was sent to a reader that had hung up', async () => {
    const script = 'until [ -e /tmp/go ]; do sleep 0.01; done; echo kept; : >/tmp/said; read line'
    const added = await pod.add('host', 'unlucky', ['sh', '-c', script])
    const other = await pod.started.connect()
    const key = { containerId: 'host', execId: 'unlucky', len: 100 }
    const lost = other.agent.readStdout(key).catch((error: unknown) => error)
    await other.health.check({})
    // While the agent is stopped, the output and the hang-up both become pending, so it sees them at once.
    const agentPid = pod.started.agentPid()
    process.kill(agentPid, 'SIGSTOP')
    try {
      writeFileSync(`${pod.root}/tmp/go`, '')
      await expect.poll(() => existsSync(`${pod.root}/tmp/said`)).toBe(true)
      other.close()
    } finally {
      process.kill(agentPid, 'SIGCONT')
    }
    expect(await lost).toMatchObject({ code: 'UNAVAILABLE' })
    await added.closeStdin()
    expect((await added.readAll()).toString()).toBe('kept\n')
    await added.wait()
  })

  it('end with their container also for a client that has stopped reading its answers', async () => {
    const script = 'echo ready; read go; head -c 524288 /dev/zero; echo written >&2; yes >&2'
    const init = await pod.run('deaf', ['sh', '-c', script])
    expect((await init.read('stdout', MIB)).toString()).toBe('ready\n')
    await init.write('go\n')
    expect((await init.read('stderr', 8)).toString()).toBe('written\n')
    const other = await pod.started.connect()
    other.socket.pause()
    const key = { containerId: 'deaf', execId: '' }
    // The kernel has no room for half a mebibyte, so this answer and all later ones stay on their way.
    const answers: Promise<unknown>[] = [other.agent.readStdout({ ...key, len: MIB })]
    for (let read = 0; read < 130; read++) answers.push(other.agent.readStderr({ ...key, len: 1 }))
    answers.push(other.agent.waitProcess(key))
    // A stream has at most 127 answers on their way.
    await expect.poll(() => openCalls(pod)).toEqual(['ReadStderr', 'ReadStderr', 'ReadStderr', 'WaitProcess'])
    await pod.remove('deaf')
    other.close()
    await Promise.allSettled(answers)
  })

  it('of one process without a reader or writer block no other process', async () => {
    const full = await pod.add('host', 'full', ['sh', '-c', 'yes & sleep 1000'])
    const stuck = full.write(Buffer.alloc(200_000)).catch((error: unknown) => error)
    const other = await pod.add('host', 'beside', ['cat'])
    await other.write('passes\n')
    await other.closeStdin()
    expect((await other.readAll()).toString()).toBe('passes\n')
    await other.wait()
    await full.signal(SIGKILL)
    expect(await stuck).toMatchObject({ code: 'INTERNAL' })
    expect(await full.wait()).toBe(128 + SIGKILL)
  })

  it('of a container on a terminal are one stream, which ends with it', async () => {
    const init = await pod.run('tty', ['sh', '-c', 'stty size; tty; cat; stty size; echo last >&2'], {
      terminal: true,
    })
    expect(await init.readUntil('/dev/pts/0\r\n')).toBe('33 77\r\n/dev/pts/0\r\n')
    await init.resize(50, 132)
    await init.write(END_OF_TRANSMISSION)
    const pendingErrors = init.readAll('stderr')
    const rest = Buffer.concat([await init.readAll('stdout'), await pendingErrors]).toString()
    expect(rest).toContain('50 132\r\n')
    expect(rest).toContain('last\r\n')
    expect(await init.wait()).toBe(0)
    await pod.remove('tty')
  })

  it('of a terminal end also when its processes are killed, and refuse an impossible size', async () => {
    const init = await pod.run('tty-killed', ['sh', '-c', 'echo ready; sleep 1000'], { terminal: true })
    await init.readUntil('ready\r\n')
    await expect(init.resize(65_536, 1)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    const reading = init.readAll()
    await pod.agent.signalProcess({ containerId: 'tty-killed', signal: SIGKILL })
    expect(await reading).toHaveLength(0)
    expect(await init.wait()).toBe(128 + SIGKILL)
    await pod.remove('tty-killed')
  })

  it('end with their process although one that outlives it holds them open', async () => {
    const added = await pod.add('host', 'holder', ['sh', '-c', 'echo both; echo both >&2; sleep 1000 &'])
    const both = await Promise.all([added.readAll('stdout'), added.readAll('stderr')])
    expect(both.map(String)).toEqual(['both\n', 'both\n'])
    expect(await added.wait()).toBe(0)
  })

  it('leave nothing open', async () => {
    const openFiles = () => pod.started.openFiles()
    // A process is released a few milliseconds after its status was reported.
    await expect.poll(openFiles).not.toContain('/memfd:stdout-data (deleted)')
    const before = openFiles()
    for (const terminal of [false, true]) {
      const added = await pod.add('host', `closed-${terminal}`, ['echo', 'x'], { terminal })
      await added.readAll()
      await added.wait()
      const init = await pod.run('closed', ['echo', 'x'], { terminal })
      await init.readAll()
      await pod.remove('closed')
    }
    await expect.poll(openFiles).toEqual(before)
    expect({ ...leftoversOf(pod.started, 'closed'), processes: [] }).toEqual(NOTHING_LEFT)
  })
})

/** The methods of the open calls, without this one. */
async function openCalls({ started }: AgentPod): Promise<string[]> {
  const { calls } = await started.introspection.listCalls({})
  return calls.map(({ method }) => method.replace(/.*\//, '')).filter((method) => method !== 'ListCalls')
}

/** The agent notices a closed connection before it accepts a new one. */
async function hungUp(pod: AgentPod): Promise<void> {
  const probe = await pod.started.connect()
  await probe.health.check({})
  probe.close()
}
