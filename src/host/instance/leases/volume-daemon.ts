import { existsSync, statSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../../../base/errors.ts'
import type { VolumeRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { SERVED_DISK } from '../../qemu/device-parts.ts'
import { addDhParams } from '../../qemu/dh-params.ts'
import type { Holder } from '../holder/holder.ts'
import { makeFolders, makeLinks, OWN_FOLDER } from '../machine/instance-files.ts'
import { lastLine } from '../machine/machine.ts'
import { confinement, explainStart, StartOpener } from '../machine/walls.ts'

/** Name of the process, of its node, and of what it leaves in its folder. */
const NAME = 'volume'
const [CREDENTIALS, PEER] = ['tls', 'peer']
/** Between two looks whether it serves. */
const LOOK_MS = 20

/** Paths of PEM files, by which this host and others know each other. */
export interface HostIdentity {
  readonly ca: string
  readonly cert: string
  readonly key: string
}

export interface VolumePlace {
  /** Of the holder. */
  readonly folder: string
  readonly program: string
  /** Where other hosts find it, and by what it shows them who it is. */
  readonly listen: string
  readonly identity: HostIdentity
  /** How long it may take to begin. */
  readonly withinMs: number
}

/** What the writer of an epoch asks the server for. QEMU is told its words before it has an epoch, but its socket is its own. */
export function nameOfExport({ epoch, peer }: VolumeRecord): string {
  return peer === '' ? SERVED_DISK : `epoch-${epoch}`
}

/**
 * Starts a qemu-storage-daemon that serves the file to the one writer of the record, and waits until it does. It is the user who owns
 * the file. Rejects with UNAVAILABLE and QEMU's words when it ends before, such as for a file that another process writes to.
 */
export async function startVolumeDaemon(
  holder: Holder,
  record: VolumeRecord,
  place: VolumePlace,
): Promise<void> {
  const { folder, program, withinMs } = place
  const status = statSync(record.path, { throwIfNoEntry: false })
  if (status === undefined) throw new AgentError('FAILED_PRECONDITION', `${record.path}: ENOENT`)
  makeFolders(folder, status.uid)
  const [started, log] = [join(OWN_FOLDER, 'started'), join(folder, `${NAME}.log`)]
  for (const path of [join(folder, started), record.socket]) if (path !== '') await rm(path, { force: true })
  const opener = new StartOpener()
  const server = record.peer === '' ? unixServer(record, opener) : await tlsServer(record, place, opener)
  const disk = {
    driver: status.isBlockDevice() ? 'host_device' : 'file',
    ...{ 'node-name': NAME, filename: record.path },
  }
  const exported = `type=nbd,id=export,node-name=${NAME},name=${nameOfExport(record)},writable=on`
  const argv = [
    ...[program, ...server, '--blockdev', JSON.stringify(disk)],
    ...['--export', exported, '--pidfile', started],
  ] as [string, ...string[]]
  const isOfNetwork = record.peer !== ''
  const walls = [
    ...opener.walls,
    ...(isOfNetwork && status.uid !== 0 ? ['processes=own'] : []),
    ...confinement({ uid: status.uid, groups: [status.gid] }, isOfNetwork),
  ]
  const plan = { name: NAME, argv, walls, output: 'log' } as const
  await holder.start(plan).catch((error) => {
    throw error instanceof AgentError ? explainStart(error, folder, plan) : error
  })
  for (const late = AbortSignal.timeout(withinMs); !existsSync(join(folder, started)); await delay(LOOK_MS)) {
    const [child] = (await holder.children()).filter(({ name }) => name === NAME)
    const text = child?.exit === undefined ? `nothing in ${withinMs} ms` : await lastLine(log)
    if (late.aborted || child?.exit !== undefined)
      throw new AgentError('UNAVAILABLE', `volume ${record.path}: ${text}`)
  }
}

function unixServer({ socket }: VolumeRecord, opener: StartOpener): readonly string[] {
  return ['--nbd-server', `addr.type=fd,addr.str=${opener.listener(socket)}`]
}

/** By itself QEMU takes the certificate of any host of the CA. */
async function tlsServer(
  { peer, port }: VolumeRecord,
  { folder, identity, listen }: VolumePlace,
  opener: StartOpener,
): Promise<readonly string[]> {
  await makeLinks(join(folder, CREDENTIALS), {
    'ca-cert.pem': opener.read(identity.ca),
    'server-cert.pem': opener.read(identity.cert),
    'server-key.pem': opener.read(identity.key),
  })
  await addDhParams(join(folder, CREDENTIALS))
  const at = `addr.type=inet,addr.host=${listen},addr.port=${port}`
  return [
    ...['--object', `tls-creds-x509,id=${CREDENTIALS},endpoint=server,verify-peer=on,dir=${CREDENTIALS}`],
    ...['--object', `authz-simple,id=${PEER},identity=CN=${peer}`],
    ...['--nbd-server', `${at},tls-creds=${CREDENTIALS},tls-authz=${PEER}`],
  ]
}
