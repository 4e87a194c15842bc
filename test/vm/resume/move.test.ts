import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import {
  AttachRequest,
  AttachResponse,
  Instance,
  InstanceServiceDefinition,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { IPFamily } from '../../../src/gen/types.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { instanceJson } from '../../../src/microvm/machines/command.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { podOf, RemoteProcess } from '../../support/containers/pod.ts'
import { daemonClient } from '../../support/host-wing/running-daemon.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { savableGuest } from '../../support/vm/daemon-guest.ts'
import { ROOT } from '../../support/vm/guest-pod.ts'
import { type BridgedHosts, startBridgedHosts } from '../../support/wing/moves/bridged-hosts.ts'

/** Counts on its output, and in a file of its disk. */
const COUNT = `trap 'exit 7' TERM
mkdir -p /www; i=0
while :; do
  echo line $i; echo line $i >> /www/lines
  [ $((i % 20)) = 0 ] && sync
  i=$((i+1)); usleep 20000
done`
const ANSWER = 'while read line; do echo got $line; done'
const SERVE = 'httpd -p 8080 -h /www && echo listening && exec sleep 1000000'
const BOOT_MS = 120_000
const MAC = '52:54:00:00:01:01'
const ADDRESS = '10.0.0.9'

/**
 * Asks for the counted lines by one connection after another, and says how many there were. Ends with what is wrong. The file may
 * grow while it is sent: its length in the header is no end.
 */
const ASK = `
  const { connect } = require('node:net')
  const ask = () => {
    const socket = connect({ host: '${ADDRESS}', port: 8080 })
    let text = ''
    socket.on('data', (bytes) => (text += bytes)).on('end', () => {
      const [head, body = ''] = text.split('\\r\\n\\r\\n')
      const lines = body.split('\\n').slice(0, -1)
      const wrong = lines.findIndex((line, number) => line !== 'line ' + number)
      if (!/^HTTP\\/1.. 200 /.test(head) || wrong >= 0) throw new Error(head + ': ' + lines[wrong])
      console.log(lines.length)
      setTimeout(ask, 20)
    })
    socket.write('GET /lines HTTP/1.0\\r\\n\\r\\n')
  }
  ask()
`

describe.skipIf(cannotBoot() !== undefined)('a pod that moves to another host', { timeout: 300_000 }, () => {
  let hosts: BridgedHosts

  beforeAll(async () => {
    hosts = await startBridgedHosts()
    const folder = temporaryFolder()
    const disk = join(folder, 'containers.img')
    execFileSync('cp', ['--sparse=always', await ensureContainerRoot(progress), disk])
    const backend = specKey('tap')
    const specification = await savableGuest(disk, {
      extra: {
        devices: { [specKey('card')]: { kind: 'nic', slot: 6, mac: MAC, backend } },
        backends: { [backend]: { kind: 'tap', interfaceName: 'tap-web', bridge: 'br0' } },
      },
    })
    const file = join(folder, 'web.json')
    const described = Instance.fromPartial({ properties: { key: 'web' }, specification })
    writeFileSync(file, JSON.stringify(instanceJson(described)))
    await hosts.run('a', 'ensure', file)
    await hosts.run('a', 'start', 'web')
  }, BOOT_MS)

  afterAll(async () => {
    for (const host of ['a', 'b'] as const) await hosts?.run(host, 'rm', 'web').catch(() => {})
    await hosts?.end()
  })

  const folderAt = (host: 'a' | 'b') =>
    join(dirname(hosts.socketOf(host)), 'instances', instanceFolderName(specKey('web')))
  const agentAt = async (host: 'a' | 'b') => {
    const dialer = {
      connect: (signal: AbortSignal) => connectMachine(hosts.socketOf(host), 'web', signal),
    }
    return await connectAgent(dialer, AbortSignal.timeout(BOOT_MS))
  }

  it('goes on there with every byte of its streams, its input, its terminals, its disk, its network and its exits', async () => {
    const connection = await agentAt('a')
    const agent = agentOf(connection)
    const storages = [{ driver: 'blk', fstype: 'ext4', options: [], source: '05', mountPoint: ROOT }]
    await agent.createSandbox({ sandboxId: 'pod', hostname: 'web', storages })
    const address = { family: IPFamily.v4, address: ADDRESS, mask: '24' }
    await agent.updateInterface({
      interface: { device: 'eth0', name: 'eth0', hwAddr: MAC, mtu: 1500n, IPAddresses: [address] },
    })
    const pod = podOf(agent, ROOT)
    const client = daemonClient(hosts.socketOf('a'))
    const stream = { key: 'web', container: 'count', exec: '', stream: 'stdout' }
    const { port } = await client.instances.allocatePort(stream)
    await pod.run('count', ['sh', '-c', COUNT], { ports: { stdoutPort: port } })
    const linesAt = async (host: 'a' | 'b') =>
      (await readRing(folderAt(host), port)).bytes.toString().split('\n')
    await expect.poll(async () => (await linesAt('a')).length, { timeout: 30_000 }).toBeGreaterThan(20)
    const server = await pod.run('serve', ['sh', '-c', SERVE])
    await server.readUntil('listening')
    const asking = askerIn(hosts)
    await asking.answersMore()
    const reader = await pod.run('reads', ['cat'])
    const shell = await pod.add('reads', 'shell', ['sh', '-c', ANSWER], { terminal: true })
    await shell.write('here\n')
    await shell.readUntil('got here')
    // Is read there.
    await reader.write('written here\n')
    const { fullName, methods } = InstanceServiceDefinition
    const { lastSequence } = await clientFor(IntrospectionDefinition, connection).getEvents({})
    const attached = client.open(`${fullName}/${methods.attach.name}`)
    attached.call.end(AttachRequest.encode(AttachRequest.fromPartial({ key: 'web', port })).finish())
    const { moved, operation } = JSON.parse(await hosts.run('a', 'migrate', 'web', '--to', 'b', '--json'))
    expect(operation.steps.map(({ name }: { name: string }) => name)).toContain('unplug')
    const { stopped_us: stoppedUs, waiting_us: waitingUs } = moved.operation
    progress(`moved: guest stopped ${stoppedUs} us, callers waiting ${waitingUs} us`)
    expect(Number(stoppedUs)).toBeGreaterThan(0)
    // The memory is copied while the guest runs.
    expect(Number(stoppedUs)).toBeLessThan(20_000_000)
    expect(Number(waitingUs)).toBeGreaterThan(Number(stoppedUs))
    await attached.ended
    const answers = attached.answers.map((bytes) => AttachResponse.decode(bytes))
    expect(answers.at(-1)?.moved?.host).toBe('b')
    const position = answers.reduce((sum, { data }) => sum + data.length, 0)
    connection.close()
    client.close()
    const before = (await linesAt('b')).length
    await expect
      .poll(async () => (await linesAt('b')).length, { timeout: 30_000 })
      .toBeGreaterThan(before + 20)
    const lines = (await linesAt('b')).slice(0, -1)
    expect(lines).toEqual(lines.map((_, number) => `line ${number}`))
    expect((await readRing(folderAt('b'), port)).end).toBeGreaterThan(BigInt(position))
    await asking.answersMore()
    await asking.end()
    // Host a passes its callers on.
    const there = await agentAt('a')
    const again = agentOf(there)
    const news = await clientFor(IntrospectionDefinition, there).getEvents({ afterSequence: lastSequence })
    expect(news.events.length).toBeGreaterThan(0)
    expect(news.events.map(({ sequence }) => sequence)).toEqual(
      news.events.map((_, index) => lastSequence + BigInt(index) + 1n),
    )
    const readerThere = new RemoteProcess(again, 'reads')
    const shellThere = new RemoteProcess(again, 'reads', 'shell')
    await shellThere.write('there\n')
    expect(await shellThere.readUntil('got there')).not.toContain('got here')
    await readerThere.write('written there\n')
    await readerThere.closeStdin()
    expect((await readerThere.readAll()).toString()).toBe('written here\nwritten there\n')
    expect(await readerThere.wait()).toBe(0)
    await again.signalProcess({ containerId: 'count', execId: '', signal: 15 })
    expect((await again.waitProcess({ containerId: 'count', execId: '' })).status).toBe(7)
    there.close()
    expect(await hosts.run('b', 'inspect', 'web', '--timeline')).toMatch(
      /^arrival .*guest stopped [0-9.]+ ms, callers waiting [0-9.]+ ms\n/ms,
    )
  })
})

interface Asker {
  /** Resolves once it has got an answer with more lines than the last one so far. */
  answersMore(): Promise<void>
  end(): Promise<void>
}

/** Asks the guest from the third namespace. */
function askerIn({ namespaces: { c } }: BridgedHosts): Asker {
  // It ends with this process at the latest.
  const [program = '', ...words] = [...c.enter, 'setpriv', '--pdeathsig', 'KILL', process.execPath, '-e', ASK]
  const asker = spawn(program, words, { stdio: ['ignore', 'pipe', 'pipe'] })
  let [said, failure] = ['', '']
  asker.stdout.on('data', (bytes) => {
    said += bytes
  })
  asker.stderr.on('data', (bytes) => {
    failure += bytes
  })
  const failed = once(asker, 'exit').then(() => Promise.reject(new Error(failure)))
  failed.catch(() => {})
  const last = () => Number(said.trimEnd().split('\n').at(-1))
  return {
    answersMore: async () => {
      const before = last()
      const more = expect.poll(last, { timeout: 60_000 }).toBeGreaterThan(before)
      await Promise.race([more, failed])
    },
    end: async () => {
      await endChild(asker)
      expect(failure).toBe('')
    },
  }
}
