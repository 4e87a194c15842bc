import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { recordingPath } from '../../recordings/recording.ts'
import { recordedRoot } from '../../recordings/supplies.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { inNamespaceOf } from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** The recorded calls name the first interface by its address; the second gives it a carrier. */
const LINK = 'eth0 address 02:00:00:00:00:77 type veth peer name p0 address 02:00:00:00:00:78'

describe('agent-ctl record and replay', () => {
  let network: NetworkNamespace
  let started: AgentProcess
  beforeEach(async () => {
    network = await makeNetworkNamespace(LINK)
    for (const up of ['lo', 'p0']) network.ip(`link set ${up} up`)
    started = await startAgent({ network })
    inNamespaceOf(started, 'mount', '-t', 'tmpfs', 'tmpfs', '/sys/devices/system/memory')
  })
  afterEach(async () => {
    await started.stop()
    await network.close()
  })

  /** A program that copies a root to the root path of the container on stdin. */
  function supplier(): string {
    const folder = temporaryFolder()
    const root = recordedRoot(folder)
    const program = join(folder, 'supply')
    const path = `${started.inside('')}$(sed -E 's/.*"Root":\\{"Path":"([^"]*)".*/\\1/')`
    const script = `path="${path}"; mkdir -p "\${path%/*}" && cp -a ${root} "$path"`
    writeFileSync(program, `#!/bin/sh\n${script}\n`, { mode: 0o755 })
    return program
  }

  it("plays the recorded session of the reference's own tool", async () => {
    const words = ['-a', `unix://${started.path}`, 'replay', recordingPath('agent-ctl.full-spec')]
    const { status, stderr, stdout } = await ctl([...words, '--prepare', supplier()])
    expect({ status, stderr, stdout }).toEqual({
      status: 0,
      stderr: '',
      stdout: expect.stringMatching(/^agent-ctl\.full-spec: \d+ calls, 0 differences\n$/),
    })
  })

  it('records a session through a socket of its own, which plays with the same answers', async () => {
    const folder = temporaryFolder()
    const [file, socket] = [join(folder, 'calls.jsonl'), join(folder, 'recorder.sock')]
    const interruptions = new Interruptions()
    const address = ['-a', `unix://${started.path}`]
    const recording = ctl([...address, 'record', file, '--listen', `unix://${socket}`, '--once'], {
      interruptions,
    })
    const commands = [
      'Version',
      'CreateSandbox sandbox_id=one',
      'GetGuestDetails',
      'ListInterfaces',
      'StartContainer cid=x',
    ]
    const session = await ctl([
      ...['-a', `unix://${socket}`, '--wait', '10', 'connect', '--ignore-errors', '-c', ...commands],
    ])
    expect(session.status).toBe(0)
    expect(await recording).toMatchObject({ status: 0 })
    expect(statSync(file).mode & 0o777).toBe(0o600)
    const methods = [...readFileSync(file, 'utf8').matchAll(/"method":"[\w.]+\/(\w+)"/g)].map(
      ([, name]) => name,
    )
    expect(methods).toEqual([
      ...['Check', 'Version', 'CreateSandbox', 'GetGuestDetails', 'ListInterfaces', 'StartContainer'],
      // The tool lists the containers to explain the unknown one.
      'ListContainers',
    ])
    const metadata = [...readFileSync(file, 'utf8').matchAll(/"metadata":(\{[^}]*\})/g)].map(
      ([, text]) => text,
    )
    expect(JSON.parse(metadata.at(-2) ?? '')).toMatchObject({ 'agent-ctl-cfg': 'auto-values' })
    await ctl([...address, 'DestroySandbox'])
    await started.stop()
    started = await startAgent({ network })
    const again = await ctl(['-a', `unix://${started.path}`, 'replay', file, '--strict'])
    expect(again).toEqual({ status: 0, stderr: '', stdout: 'calls: 7 calls, 0 differences\n' })
  })

  it('records command lines one after the other into one session, also over gRPC', async () => {
    const file = join(temporaryFolder(), 'calls.jsonl')
    const address = ['-a', `unix://${started.path}`]
    const recorded = [...address, '--record', file]
    for (const words of [
      ['Version'],
      ['--protocol', 'grpc', 'GetGuestDetails'],
      ['StartContainer', 'container_id=x'],
    ])
      await ctl([...recorded, ...words])
    expect(statSync(file).mode & 0o777).toBe(0o600)
    const again = await ctl([...address, 'replay', file, '--strict'])
    expect(again).toEqual({ status: 0, stderr: '', stdout: 'calls: 3 calls, 0 differences\n' })
    writeFileSync(file, 'notes of mine\n')
    expect(await ctl([...recorded, 'Version'])).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('calls.jsonl, line 1: '),
    })
    expect(readFileSync(file, 'utf8')).toBe('notes of mine\n')
  })

  it('passes other protocols through, and says that they are not recorded', async () => {
    const folder = temporaryFolder()
    const [file, socket] = [join(folder, 'calls.jsonl'), join(folder, 'recorder.sock')]
    const words = ['-a', `unix://${started.path}`, 'record', file, '--listen', `unix://${socket}`, '--once']
    const recording = ctl(words)
    const caller = ['-a', `unix://${socket}`, '--wait', '10', '--protocol', 'grpc', '-o', 'json', 'Check']
    expect((await ctl(caller)).stdout).toBe('{"status":"SERVING"}\n')
    expect(await recording).toMatchObject({
      status: 0,
      stderr: expect.stringContaining('agent-ctl: connection 1: not ttRPC, and not recorded\n'),
    })
  })

  it('shows what another agent answers', async () => {
    const name = 'agent-ctl.full-spec'
    const words = ['-a', `unix://${started.path}`, '-o', 'json', 'replay', recordingPath(name)]
    const { status, stdout } = await ctl(words)
    expect(status).toBe(1)
    const lines = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines).toContainEqual({
      line: expect.any(Number),
      call: 'CreateContainer',
      difference: expect.stringMatching(/^CreateContainer: failed with /),
    })
    expect(lines.at(-1)).toMatchObject({ recording: name, differences: lines.length - 1 })
  })

  it.each([
    ['/nonexistent', '/nonexistent: no such file or directory'],
    ['/etc/hostname', '/etc/hostname, line 1: '],
  ])('says in one line that %s is no recording', async (path, reason) => {
    const { status, stderr } = await ctl(['-a', `unix://${started.path}`, 'replay', path])
    expect(status).toBe(2)
    expect(stderr).toContain(reason)
    expect(stderr.split('\n')).toHaveLength(2)
  })
})
