import { randomInt } from 'node:crypto'
import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { buildAddon } from '../../../build/native.ts'
import { checkErrno } from '../../../os/errors.ts'
import { loadNative, type Native } from '../../../os/native.ts'
import type { Opener } from '../../qemu/parts-host.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'
import { fileOfSet } from '../machine/walls.ts'
import { closeUnused } from './descriptor-sets.ts'

type Opening = (native: Native, qmp: QmpClient, signal: AbortSignal) => Promise<void>

/** Opens for a QEMU that runs what its new parts need, with the rights of this process. */
export class RunningOpener implements Opener {
  readonly #openings: Opening[] = []
  readonly #names: string[] = []

  disk(path: string, isWritten: boolean): string {
    const set = randomInt(FIRST_SET, 2 ** 31)
    this.#openings.push(async (native, qmp, signal) => {
      const file = await open(path, isWritten ? 'r+' : 'r').catch((error) => {
        throw new AgentError('FAILED_PRECONDITION', `${path}: ${errnoOf(error)}`)
      })
      try {
        const args = { 'fdset-id': set, opaque: path }
        await qmp.pass({ execute: 'add-fd', arguments: args }, { native, fd: file.fd }, signal)
      } finally {
        await file.close()
      }
    })
    return fileOfSet(set)
  }

  tap(name: string): string {
    return this.#openTap(name, 0)
  }

  queue(name: string, index: number): string {
    return this.#openTap(name, IFF_MULTI_QUEUE | (index === 0 ? IFF_TUN_EXCL : 0))
  }

  #openTap(name: string, moreFlags: number): string {
    return this.#named(async (native) => {
      const file = await open('/dev/net/tun', 'r+')
      const request = Buffer.alloc(IFREQ_BYTES)
      request.write(name, 'latin1')
      request.writeUInt16LE(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | moreFlags, IFNAMSIZ)
      const result = await native.ioctl(file.fd, TUNSETIFF, request)
      if (result < 0) await file.close()
      checkErrno('make', `interface ${name}`, result)
      return { fd: file.fd, close: () => file.close() }
    })
  }

  connection(socket: string): string {
    return this.#named(async (native) => {
      const fd = checkErrno('socket', socket, native.unixSocket())
      const connected = native.unixConnect(socket, fd)
      if (connected < 0) native.close(fd)
      checkErrno('connect', socket, connected)
      native.setNonBlocking(fd, false)
      return { fd, close: async () => void native.close(fd) }
    })
  }

  device(path: string): string {
    return this.#named(async () => {
      const file = await open(path, 'r+')
      return { fd: file.fd, close: () => file.close() }
    })
  }

  read(path: string): string {
    throw new AgentError('UNIMPLEMENTED', `${path}: QEMU reads it at its start only`)
  }

  map(path: string): string {
    throw new AgentError('UNIMPLEMENTED', `${path}: QEMU maps it at its start only`)
  }

  /** Gives QEMU all that parts were named for. To be called once, before the commands that make them. */
  async open(qmp: QmpClient, signal: AbortSignal): Promise<void> {
    if (this.#openings.length === 0) return
    const native = loadNative(dirname(await buildAddon()))
    for (const each of this.#openings) await each(native, qmp, signal)
  }

  /** Closes in QEMU what no part has taken. */
  async discard(qmp: QmpClient, signal: AbortSignal): Promise<void> {
    for (const fdname of this.#names)
      await qmp.command({ execute: 'closefd', arguments: { fdname } }, signal).catch(() => {})
    await closeUnused(qmp, signal)
  }

  /** A name of QEMU for a descriptor, until a part takes it. */
  #named(
    make: (native: Native) => Promise<{ readonly fd: number; readonly close: () => Promise<void> }>,
  ): string {
    const fdname = `given-${randomInt(2 ** 31)}`
    this.#names.push(fdname)
    this.#openings.push(async (native, qmp, signal) => {
      const { fd, close } = await make(native)
      try {
        await qmp.pass({ execute: 'getfd', arguments: { fdname } }, { native, fd }, signal)
      } finally {
        await close()
      }
    })
    return fdname
  }
}

/** Those below are of the start. */
const FIRST_SET = 1 << 16

/** linux/if_tun.h, linux/if.h. */
const TUNSETIFF = 0x4004_54ca
const IFF_TAP = 0x0002
const IFF_MULTI_QUEUE = 0x0100
/** Refuses a tap of several queues that is there: it would be another's. */
const IFF_TUN_EXCL = 0x8000
const IFF_NO_PI = 0x1000
const IFF_VNET_HDR = 0x4000
const IFNAMSIZ = 16
const IFREQ_BYTES = 40
