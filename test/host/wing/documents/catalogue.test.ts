import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  type Instance,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { hostCpus } from '../../../../src/host/instance/machine/cpu-shares.ts'
import { type Daemon, startDaemon } from '../../../../src/host/service/daemon.ts'
import { type DaemonClient, daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { ip } from '../../../support/wing/made-machine.ts'
import { image } from '../../../support/wing/real-wing.ts'

const EXAMPLES = join(import.meta.dirname, '../../../../examples')
const example = (name: string) => readFileSync(join(EXAMPLES, name), 'utf8')
const online = [...hostCpus().online]
/** The last CPU of this host is the pool. */
const POOLED = online.at(-1) ?? 0
const BRIDGE = 'mvcatalogue'

describe('two tenants and one catalogue', () => {
  const folder = temporaryFolder()
  const path = join(folder, 'catalogue.toml')
  const files = join(folder, 'files')
  const state = join(folder, 's')
  const clients: { close(): void }[] = []
  let daemon: Daemon

  const write = (change: (text: string) => string = (text) => text) => {
    const text = example('catalogue.toml')
      .replaceAll('/srv/microvm', files)
      .replace('"br0"', `"${BRIDGE}"`)
      .replace('"4-7"', `"${POOLED}"`)
    writeFileSync(path, change(text), { mode: 0o644 })
  }

  async function start(rebuild = false) {
    const tenants = ['anne', 'bob'].map((name, index) => ({ name, uid: 1000 + index, folders: [] }))
    const configuration = { tenants, catalogue: path }
    const options = { stateFolder: state, configuration, rebuild, acceleration: 'tcg' }
    daemon = await startDaemon({ ...options, mock: false, log: silentLogger() })
  }

  function client(name?: string): DaemonClient['instances'] {
    const opened = daemonClient(name === undefined ? daemon.socket : join(state, `tenants/${name}.sock`))
    clients.push(opened)
    return opened.instances
  }

  async function stop() {
    for (const each of clients.splice(0)) each.close()
    await daemon.close()
  }

  const ensure = (name: string | undefined, key: string, document: string) =>
    client(name).ensureInstance({ properties: { key, tenant: '', labels: {} }, document })

  const change = (name: string, key: string, to: Change) =>
    client(name).changeState({ key, change: to, graceMs: 0 })

  beforeAll(async () => {
    mkdirSync(join(files, 'reports'), { recursive: true })
    for (const name of ['web-root.raw', 'ledger-data.raw', 'tools.iso']) image(files, name, 4)
    spawnSync('qemu-img', ['create', '-q', '-f', 'qcow2', join(files, 'ledger-root.qcow2'), '8M'])
    ip('link', 'add', BRIDGE, 'type', 'bridge')
    write()
    await start()
  })

  afterEach(async () => {
    const { instances } = await client().listInstances({})
    for (const { properties } of instances) await client().remove({ key: properties?.key ?? '' })
    write()
  })

  afterAll(async () => {
    await stop()
    ip('link', 'del', BRIDGE)
    expect(leftovers(state)).toEqual([])
  })

  it('are the examples, each of its tenant, with the limits of disks and the pinned CPU', async () => {
    const web = await ensure('anne', 'web', example('web.yaml'))
    expect(web.state).toBe(State.PAUSED)
    expect(web.runValues).toEqual({ 'nic0-backend': expect.stringMatching(/^mv[0-9a-f]{12}$/) })
    expect(ip('-o', 'link', 'show', 'master', BRIDGE)).toContain(web.runValues['nic0-backend'])
    const ledger = await ensure('bob', 'ledger', example('ledger.yaml'))
    expect(ledger.runValues).toMatchObject({ cpus: `${POOLED}` })
    expect(wordsOf(ledger)).toContain(',host-nodes=0,policy=preferred')
    const desktop = await ensure(undefined, 'desktop', example('desktop.yaml'))
    expect(desktop.runValues).toEqual({ 'display0-backend': 'run/display0-backend.sock' })
  })

  it('have each name refused that the other may use', async () => {
    const own = [
      ['anne', 'web.yaml', 'web-root', 'ledger-data', 'storage[0].source: volume "ledger-data"'],
      ['anne', 'web.yaml', 'lan', 'wan', 'network[0].source: network "wan"'],
      ['bob', 'ledger.yaml', 'ledger-data', 'web-root', 'storage[1].source: volume "web-root"'],
    ] as const
    for (const [tenant, file, mine, other, field] of own) {
      const document = example(file).replace(`source: ${mine}`, `source: ${other}`)
      await expect(ensure(tenant, 'other', document)).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: expect.stringContaining(
          `spec.features.${field}: not in the catalogue for tenant ${tenant}, `,
        ),
      })
    }
    await expect(
      ensure('anne', 'other', example('web.yaml').replace('cpu: 1', 'cpu: {exclusive: fast}')),
    ).rejects.toThrow('cpu.exclusive: CPU pool "fast": not in the catalogue for tenant anne')
    await expect(
      ensure('anne', 'other', example('web.yaml').replace('reports\n', '/etc\n')),
    ).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining('spec.features.share[0].source: "/etc", want a name'),
    })
    await expect(ensure('anne', 'other', `${example('web.yaml')}  domain: {}\n`)).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'spec.domain: only for the administrator',
    })
    expect((await client().listInstances({})).instances).toEqual([])
  })

  it('read the catalogue anew at each start, which refuses a name that has vanished', async () => {
    await ensure('anne', 'web', example('web.yaml'))
    expect((await change('anne', 'web', Change.KILL)).runValues).toEqual({})
    write((text) => text.replace('volumes.web-root', 'volumes.web-old'))
    await expect(change('anne', 'web', Change.RUN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining(
        'spec.features.storage[0].source: volume "web-root": not in the catalogue',
      ),
    })
    write((text) => `${text}\n[volume.a]\n`)
    await expect(change('anne', 'web', Change.RUN)).rejects.toThrow(`${path}: volume: unknown field`)
    write()
    expect((await change('anne', 'web', Change.RUN)).state).toBe(State.RUNNING)
  })

  it('leave a volume to its first writer', async () => {
    write((text) => text.replaceAll('["anne"]', '["anne", "bob"]'))
    await ensure('anne', 'web', example('web.yaml'))
    await expect(ensure('bob', 'copy', example('web.yaml'))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining('web-root.raw'),
    })
  })

  it('have no CPU twice, also after the end of the daemon and of its registry', async () => {
    const ledger = await ensure('bob', 'ledger', example('ledger.yaml'))
    const seen = affinities(ledger)
    // A CPU thread has the pooled CPU alone, and no other has it.
    expect(seen.filter((list) => list === `${POOLED}`)).toHaveLength(1)
    expect(seen.filter((list) => list !== `${POOLED}`)).not.toContainEqual(allowing(POOLED))
    const web = await ensure('anne', 'web', example('web.yaml'))
    expect(affinities(web)).not.toContainEqual(allowing(POOLED))
    const second = example('ledger.yaml').replaceAll('ledger-', 'second-')
    write((text) => `${text}${SECOND.replaceAll('FILES', files)}`)
    for (const name of ['second-root.qcow2', 'second-data.raw']) image(files, name, 4)
    spawnSync('qemu-img', ['create', '-q', '-f', 'qcow2', join(files, 'second-root.qcow2'), '8M'])
    const refused = () =>
      expect(ensure('bob', 'second', second)).rejects.toMatchObject({
        code: 'RESOURCE_EXHAUSTED',
        message: 'cpu.exclusive: wants 1 CPUs, but CPU pool fast has 0 free',
      })
    await refused()
    for (const rebuild of [false, true]) {
      await stop()
      if (rebuild) rmSync(join(state, 'registry.sqlite'))
      await start(rebuild)
      expect((await client('bob').getInstance({ key: 'ledger' })).runValues).toMatchObject({
        cpus: `${POOLED}`,
      })
      await refused()
    }
    await change('bob', 'ledger', Change.KILL)
    expect((await ensure('bob', 'second', second)).runValues).toMatchObject({ cpus: `${POOLED}` })
    await expect(change('bob', 'ledger', Change.RUN)).rejects.toThrow('fast has 0 free')
  })
})

const SECOND = `
[volumes.second-root]
path = "FILES/second-root.qcow2"
format = "qcow2"
tenants = ["bob"]
[volumes.second-data]
path = "FILES/second-data.raw"
tenants = ["bob"]
`

/** QEMU's command line, one word a line. */
function wordsOf({ qemuPid }: Instance): string {
  return readFileSync(`/proc/${qemuPid}/cmdline`, 'utf8').replaceAll('\0', '\n')
}

/** Of all threads of QEMU and of its holder, as the kernel shows them. */
function affinities({ holderPid, qemuPid }: Instance): readonly string[] {
  const { stdout } = spawnSync(
    'grep',
    ['-hr', '^Cpus_allowed_list', `/proc/${qemuPid}/task`, `/proc/${holderPid}/task`, '--include=status'],
    {
      encoding: 'utf8',
    },
  )
  return [...stdout.matchAll(/:\t(.*)$/gm)].map(([, list = '']) => list)
}

function allowing(cpu: number): unknown {
  return expect.stringMatching(new RegExp(`(^|[,-])${cpu}($|[,-])`))
}
