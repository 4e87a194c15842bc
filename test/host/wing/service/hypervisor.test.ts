import { existsSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { Instance, Specification, State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode, VMSpec_StartMode } from '../../../../src/gen/vm.ts'
import { instanceJson } from '../../../../src/microvm/machines/command.ts'
import { answerImage, makeCertificate, serve } from '../../../support/host-wing/image-server.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { processState } from '../../../support/processes.ts'
import { removeCgroups } from '../../../support/remove-cgroups.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BOOTED, bootDisk } from '../../../support/wing/boot-disk.ts'
import {
  type HypervisorProcess,
  startHypervisor,
  untilPrinted,
} from '../../../support/wing/hypervisor-process.ts'
import { cgroupsOf, leftovers } from '../../../support/wing/leftovers.ts'
import { ip } from '../../../support/wing/made-machine.ts'

const MIB = 2 ** 20
/** Between two calls of a start at which it dies. Each start finds what the death before has left. */
const STEP = process.env[INSTANCES.lives] === undefined ? 10 : 1
/** Ends a hung run. */
const WAIT_MS = 120_000
const RUN = { name: 'web', mode: VMSpec_StartMode.SM_RUN, leaseMode: LeaseMode.LM_STORAGE_LOCKING }

describe('microvm hypervisor', () => {
  let folder: string
  let disk: string
  let state: string
  let started: HypervisorProcess[]

  beforeEach(() => {
    folder = temporaryFolder()
    disk = join(folder, 'root')
    state = join(folder, 'state')
    started = []
    const specification = Specification.fromPartial({
      board: { machine: 'pc-q35-7.2', memoryMib: 64n, cpus: 1 },
      devices: {
        root: { backend: 'root-file', slot: 3, disk: { serial: 'root' } },
        console: { backend: 'output', serial: {} },
      },
      backends: { 'root-file': { file: { path: disk, access: 2 } }, output: { console: {} } },
    })
    writeFileSync(
      join(folder, 'web.json'),
      JSON.stringify(instanceJson(Instance.fromPartial({ specification }))),
    )
  })

  afterEach(async () => {
    for (const { process, ended } of started) {
      process.kill('SIGKILL')
      await ended
    }
    await expect.poll(() => leftovers(folder).filter((line) => /^\d/.test(line))).toEqual([])
    // No daemon comes after the killed one.
    await removeCgroups(cgroupsOf(state))
  })

  function start(
    spec: Parameters<typeof startHypervisor>[0],
    env: Readonly<Record<string, string>> = {},
    more: readonly string[] = [],
  ) {
    const words = ['--machine', join(folder, 'web.json'), '--state', state, '--grace', '1', ...more]
    const hypervisor = startHypervisor({ ...RUN, ...spec }, { words, env })
    started.push(hypervisor)
    return hypervisor
  }

  const document = (more = '') => `
kind: VM
spec:
  features: { memory: { size: 64, maximum: 64 }, storage: [{ name: root }], console: serial${more} }
  domain: { devices: { disks: [{ source: { file: ${disk} }, target: { bus: virtio } }] } }
`

  const printed = (text: string) => untilPrinted(state, text)

  const runId = () => BigInt(readFileSync(join(state, 'run-id'), 'utf8').trim())

  it('prepares its disk once over cut connections and its own death, and boots it each time', {
    timeout: 2 * WAIT_MS,
  }, async () => {
    const image = bootDisk(72 * MIB)
    const certificate = makeCertificate()
    const ca = join(folder, 'ca.pem')
    writeFileSync(ca, certificate.cert)
    // The fourth request gets no answer.
    const cuts = [20 * MIB, 20 * MIB, 28 * MIB, 0]
    const server = await serve((request, answer) => {
      const cut = cuts.shift()
      if (cut !== 0) answerImage(request, answer, { image, etag: '"1"' }, cut)
    }, certificate)
    const spec = { mode: VMSpec_StartMode.SM_PREPARE_IMAGE, initialImage: { url: server.url } }
    const env = { NODE_EXTRA_CA_CERTS: ca }
    const first = start(spec, env)
    await expect.poll(() => server.ranges.length, { timeout: WAIT_MS }).toBe(4)
    const written = () => JSON.parse(readFileSync(`${disk}.initial-image`, 'utf8')).position
    await expect.poll(written, { timeout: WAIT_MS }).toBeGreaterThanOrEqual(64 * MIB)
    first.process.kill('SIGKILL')
    expect(await first.ended).toBe('SIGKILL')
    const checkpoint = written()
    const firstRun = runId()

    const unprepared = start({})
    expect(await unprepared.ended).toBe(125)
    expect(unprepared.log()).toContain(`microvm: ${disk}: only a part of ${server.url} is on it`)

    const second = start(spec, env)
    await second.until('the machine runs')
    await printed(BOOTED)
    expect(readFileSync(disk).equals(image)).toBe(true)
    // From the last checkpoint on.
    const at = ['', ...[20 * MIB, 40 * MIB, 68 * MIB, checkpoint].map((byte) => `bytes=${byte}-`)]
    expect(server.ranges).toEqual(at)
    expect(runId()).toBeGreaterThan(firstRun)
    const { qemuPid, holderPid } = await instance()
    expect(processState(qemuPid)).toBeDefined()
    second.process.kill('SIGKILL')
    await second.ended
    await expect.poll(() => [qemuPid, holderPid].map(processState)).toEqual([undefined, undefined])

    const third = start(spec, env)
    await third.until('the machine runs')
    await printed(BOOTED)
    expect(server.ranges.length).toBe(at.length)
    // Its guest watches no power button.
    third.process.kill('SIGTERM')
    expect(await third.ended).toBe(0)
  })

  async function instance() {
    const client = daemonClient(join(state, 'hypervisor.sock'))
    return await client.instances.getInstance({ key: 'web' }).finally(() => client.close())
  }

  it('refuses the URL of an image before anything is made, and then an image that is no raw disk', async () => {
    const prepare = (url: string) => start({ mode: VMSpec_StartMode.SM_PREPARE_IMAGE, initialImage: { url } })
    const wrong = prepare('ftp://host/image')
    expect(await wrong.ended).toBe(2)
    expect(wrong.log()).toBe('microvm: ftp://host/image: scheme ftp:, want http, https or file\n')
    expect(existsSync(state)).toBe(false)
    const image = join(folder, 'image')
    writeFileSync(image, bootDisk(2 * MIB))
    const large = start(
      { mode: VMSpec_StartMode.SM_PREPARE_IMAGE, initialImage: { url: `file://${image}` } },
      {},
      ['--max-image-size', '1'],
    )
    expect(await large.ended).toBe(125)
    expect(large.log()).toContain(`microvm: file://${image}: is larger than ${MIB} bytes, the limit`)
    writeFileSync(image, 'QFI\xfb', 'latin1')
    const qcow = prepare(`file://${image}`)
    expect(await qcow.ended).toBe(125)
    expect(qcow.log()).toContain(`microvm: file://${image}: format qcow, want a raw disk`)
  })

  it('looks at what its disk links to', async () => {
    const [target, image] = [join(folder, 'target'), join(folder, 'image')]
    for (const path of [target, image]) writeFileSync(path, bootDisk(MIB))
    symlinkSync(target, disk)
    const initialImage = { url: `file://${image}` }
    const hypervisor = start({ mode: VMSpec_StartMode.SM_PREPARE_IMAGE, initialImage })
    expect(await hypervisor.ended).toBe(125)
    expect(hypervisor.log()).toContain(`microvm: ${target}: has content and no record of an image`)
  })

  it('ends with its guest', async () => {
    writeFileSync(disk, bootDisk(MIB, 'powerOff'))
    const hypervisor = start({})
    expect(await hypervisor.ended).toBe(0)
    expect(hypervisor.log()).toContain('the guest has shut down')
  })

  it('fails with the reason when its machine ends otherwise, and has no other machine', async () => {
    writeFileSync(disk, bootDisk(MIB))
    const hypervisor = start({})
    await hypervisor.until('the machine runs')
    await printed(BOOTED)
    const client = daemonClient(join(state, 'hypervisor.sock'))
    const other = client.instances.ensureInstance({ properties: { key: 'db' }, specification: {} })
    await expect(other).rejects.toMatchObject({ message: 'properties.key: this hypervisor has web only' })
    const { bootId, qemuPid } = await client.instances.getInstance({ key: 'web' })
    // SeaBIOS resets itself after each.
    for (let count = 0; count < 5; count++) await client.outOfBand.reset({})
    const after = await client.instances.getInstance({ key: 'web' })
    expect(after).toMatchObject({ state: State.RUNNING })
    expect(after.bootId).not.toBe(bootId)
    client.close()
    process.kill(qemuPid, 'SIGKILL')
    expect(await hypervisor.ended).toBe(1)
    expect(hypervisor.log()).toContain('microvm: hypervisor: QEMU was ended by signal 9')
  })

  it.each([
    ['specification', STEP],
    ['document', 3 * STEP],
  ])('starts a %s after its death at any step of its start', { timeout: 4 * WAIT_MS }, async (kind, step) => {
    writeFileSync(disk, bootDisk(MIB))
    if (kind === 'document') writeFileSync(join(folder, 'web.json'), document())
    const preload = join(import.meta.dirname, '../../../support/wing/deaths/die-at-call.ts')
    let [last, deaths] = [0n, 0]
    for (let call = 1; ; call += step) {
      const hypervisor = start({}, { NODE_OPTIONS: `--import=${preload}`, DIE_AT_CALL: `${call}` })
      const over = await Promise.race([
        hypervisor.ended,
        hypervisor.until('the machine runs').catch(() => {}),
      ])
      if (over === undefined) break
      const isToldWrong = hypervisor.log().includes('microvm: ')
      expect([over, isToldWrong], `call ${call}: ${hypervisor.log()}`).toEqual(['SIGKILL', false])
      // An empty holder may wait for the next start.
      await expect.poll(() => leftovers(folder).filter((line) => line.includes('qemu'))).toEqual([])
      deaths += 1
      if (!existsSync(join(state, 'run-id'))) continue
      expect(runId(), `call ${call}`).toBeGreaterThanOrEqual(last)
      last = runId()
    }
    expect(deaths).toBeGreaterThan(40 / step)
    started.at(-1)?.process.kill('SIGKILL')
    await started.at(-1)?.ended
    const whole = start({})
    await whole.until('the machine runs')
    await printed(BOOTED)
    expect(runId()).toBeGreaterThan(last)
  })

  it('boots the machine of a document, the same over its deaths, with the addresses of VM_SPEC', async () => {
    writeFileSync(disk, bootDisk(MIB))
    writeFileSync(join(folder, 'web.json'), document())
    const spec = { address: ['10.213.7.2'] }
    const run = async () => {
      const hypervisor = start(spec, {}, ['--peer', '10.213.7.1'])
      await hypervisor.until('the machine runs')
      await printed(BOOTED)
      const { configurations, createdMs, runValues } = await instance()
      const addresses = ip('-o', 'address', 'show', 'dev', runValues['nic0-backend'] ?? '')
      // The tap goes with its QEMU.
      hypervisor.process.kill('SIGKILL')
      await hypervisor.ended
      return { machine: configurations?.current, createdMs, tap: /inet (\S+ peer \S+)/.exec(addresses)?.[1] }
    }
    const first = await run()
    expect(first.tap).toBe('10.213.7.1 peer 10.213.7.2/32')
    expect(await run()).toEqual(first)
    writeFileSync(join(folder, 'web.json'), document(', rng: true'))
    const changed = await run()
    expect(changed.createdMs).not.toBe(first.createdMs)
    expect(Object.keys(JSON.parse(changed.machine ?? '').devices)).toContain('rng0')
  })

  it('kills its machine at a second signal', async () => {
    writeFileSync(disk, bootDisk(MIB))
    const words = ['--machine', join(folder, 'web.json'), '--state', state, '--grace', '600']
    const hypervisor = startHypervisor(RUN, { words })
    started.push(hypervisor)
    await hypervisor.until('the machine runs')
    await printed(BOOTED)
    hypervisor.process.kill('SIGTERM')
    await hypervisor.until('the machine is being stopped')
    hypervisor.process.kill('SIGTERM')
    expect(await hypervisor.ended).toBe(0)
    rmSync(state, { recursive: true })
  })
})
