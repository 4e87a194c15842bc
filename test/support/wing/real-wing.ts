import { createHash } from 'node:crypto'
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import { Backend } from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import {
  type HostInstancesOptions,
  openHostInstances,
} from '../../../src/host/instance/open-host-instances.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import type { AtStep } from '../../../src/host/migration/faults.ts'
import { openMigration } from '../../../src/host/migration/migration.ts'
import { daemonsIn, FILTERED } from './leftovers.ts'
import type { DaemonLifePlan } from './lives/daemon-life.ts'
import type { DocumentLifePlan } from './lives/document-life.ts'
import type { LifePlan } from './lives/life.ts'
import { faultsOf } from './migration-faults.ts'
import { ensureRequest, file, specification } from './requests.ts'
import { tinyGuest } from './tiny-guest.ts'

/** Opens the instances of a state folder with real holders and emulated machines. */
export function openReal(
  stateFolder: string,
  registry: Registry,
  {
    atStep = faultsOf(process.env.MICROVM_TEST_FAULTS),
    log = silentLogger(),
    ...options
  }: Partial<
    Pick<HostInstancesOptions, 'catalogue' | 'defaults' | 'leases' | 'limits' | 'log' | 'quotas' | 'secrets'>
  > & {
    readonly atStep?: AtStep | undefined
  } = {},
): Promise<Instances> {
  return openHostInstances({
    ...{ ...options, stateFolder, registry, log, acceleration: 'tcg' },
    openMoves: (host) => openMigration(host, atStep),
  })
}

/** The life of an instance with files in `disks`, which are made. */
export function lifePlan(disks: string, does: Parameters<typeof tinyGuest>[1] = 'idle'): LifePlan {
  mkdirSync(disks, { recursive: true })
  const { backends } = specification()
  const board = { kernel: tinyGuest(disks, does) }
  return {
    request: ensureRequest('web', {
      specification: { board, backends: { ...backends, 'root-file': file(image(disks, 'root', 16)) } },
    }),
    other: image(disks, 'other', 16),
    data: image(disks, 'data', 8),
  }
}

/** The same with a network that has filters. */
export function filteredLifePlan(disks: string): LifePlan {
  const { request, ...others } = lifePlan(disks)
  const { board, devices, backends } = request.specification ?? specification()
  const nic = { mac: '52:54:00:00:00:08', filters: ['clean-traffic'], addresses: ['10.0.0.2'] }
  const lan = Backend.fromPartial({ tap: { interfaceName: interfaceName('l', disks) } })
  const change = {
    board,
    devices: { ...devices, lan: { backend: FILTERED, slot: 8, nic } },
    backends: { ...backends, [FILTERED]: lan },
  }
  return { ...others, request: ensureRequest('web', { specification: change }) }
}

/** The same as lifePlan for DAEMON_LIFE, with a stand-in of passt. */
export function daemonLifePlan(disks: string): DaemonLifePlan {
  const { request, ...others } = lifePlan(disks)
  const tap = Backend.fromPartial({ tap: { interfaceName: interfaceName('w', disks) } })
  const card = { backend: 'net', slot: 7, nic: { mac: '52:54:00:00:00:09', replaceable: true } }
  const { board, devices, backends } = request.specification ?? specification()
  const change = { board, devices: { ...devices, card }, backends: { ...backends, net: tap } }
  const shared = join(disks, 'shared')
  mkdirSync(shared, { recursive: true })
  addPasstStandIn(join(disks, 'bin'))
  const daemons = () => daemonsIn(dirname(disks))
  return { ...others, request: ensureRequest('web', { specification: change }), tap, shared, daemons }
}

/** The same for DOCUMENT_LIFE, with a catalogue. */
export function documentLifePlan(disks: string): DocumentLifePlan {
  const plan = lifePlan(disks)
  const catalogue = join(disks, 'catalogue.toml')
  const volume = (name: string, path: string, more = '') => `[volumes.${name}]\npath = "${path}"\n${more}`
  const lan = `[networks.lan]\ninterface = "${interfaceName('d', disks)}"\n`
  const other = volume('other', plan.other, 'limits = { iops = 1000 }\n')
  const entries = [volume('root', join(disks, 'root')), volume('more', plan.data), other, lan]
  writeFileSync(catalogue, `roots = ["${disks}"]\n${entries.join('')}`, { mode: 0o600 })
  return { ...plan, catalogue }
}

function interfaceName(prefix: string, disks: string): string {
  return `${prefix}${createHash('sha256').update(disks).digest('hex').slice(0, 10)}`
}

const LISTENS = `use IO::Socket::UNIX;
my $s = IO::Socket::UNIX->new(Listen => 5, Local => $ARGV[-1]); push @p, $s->accept while 1`

/**
 * Puts a program `passt` in front of PATH that does no more than to listen, or what the Perl code says. Returns what takes it
 * away again. An instance's user can run neither this Node nor a program that has to find its own folder.
 */
export function addPasstStandIn(bin: string, code = LISTENS): () => void {
  mkdirSync(bin, { recursive: true })
  writeFileSync(join(bin, 'passt'), `#!/usr/bin/perl\n${code}\n`, { mode: 0o755 })
  const path = process.env.PATH
  process.env.PATH = `${bin}:${path}`
  return () => {
    process.env.PATH = path
  }
}

/** Makes an image of so many MiB, and returns its path. */
export function image(folder: string, name: string, sizeMib: number): string {
  const path = join(folder, name)
  writeFileSync(path, '')
  truncateSync(path, sizeMib * 2 ** 20)
  return path
}
