import { dirname } from 'node:path/posix'
import type { Clock } from '../../../src/os/clock.ts'
import type { BlockDevices } from '../../../src/os/devices/block-devices.ts'
import type { MappedTarget } from '../../../src/os/devices/device-mapper-message.ts'
import type { KernelLine, KernelLog } from '../../../src/os/devices/kernel-log.ts'
import { parseUevent } from '../../../src/os/devices/uevent.ts'
import type { UeventCounts, UeventListener, Uevents } from '../../../src/os/devices/uevents.ts'
import type { FileSystemGrowth } from '../../../src/os/devices/volumes/growth.ts'
import type { FileSystemUsage, Volumes } from '../../../src/os/devices/volumes/volumes.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type { FakeFiles } from './files/fake-files.ts'

export class FakeBlockDevices implements BlockDevices {
  readonly contents = new Map<string, Buffer>()
  readonly mapped = new Map<string, MappedTarget & { readonly node: string }>()
  /** Returns the errno of a failing target; undefined for success. */
  failWith: (target: MappedTarget) => string | undefined = () => undefined
  readonly #files: FakeFiles
  #lastMinor = -1

  constructor(files: FakeFiles) {
    this.#files = files
  }

  async read(node: string, offsetBytes: number, lengthBytes: number): Promise<Uint8Array> {
    const content = this.contents.get(node)
    if (content === undefined) throw kernelError('read', node, 'ENOENT')
    return content.subarray(offsetBytes, offsetBytes + lengthBytes)
  }

  async map(name: string, target: MappedTarget): Promise<string> {
    if (this.mapped.has(name)) throw kernelError('device mapper: create', name, 'EBUSY')
    const errno = this.failWith(target)
    if (errno !== undefined) throw kernelError('device mapper: load', name, errno)
    this.#lastMinor += 1
    const node = `/dev/dm-${this.#lastMinor}`
    await this.#files.makeSpecial(node, { kind: 'block', major: 253, minor: this.#lastMinor })
    await this.#files.put(`/sys/block/dm-${this.#lastMinor}/dm/name`, `${name}\n`)
    this.mapped.set(name, { ...target, node })
    return node
  }

  async unmap(name: string): Promise<void> {
    const node = this.mapped.get(name)?.node
    if (node === undefined) throw kernelError('device mapper: remove', name, 'ENXIO')
    await this.#files.removeFile(node)
    await this.#files.removeTree(node.replace('/dev/', '/sys/block/'))
    this.mapped.delete(name)
  }
}

const BLOCK_BYTES = 4096n

export class FakeVolumes implements Volumes {
  readonly usages = new Map<string, FileSystemUsage>()
  /** Blocks of 4 KiB, by mount point. */
  readonly blocks = new Map<string, bigint>()
  readonly readOnly = new Set<string>()
  readonly growing = new Set(['ext4', 'xfs'])
  /** The paths prepared for swapping; `swapped` has those in use. */
  readonly swappable = new Set<string>()
  readonly swapped: string[] = []
  readonly #files: FakeFiles

  constructor(files: FakeFiles) {
    this.#files = files
  }

  async usage(path: string): Promise<FileSystemUsage> {
    const known = this.usages.get(path)
    if (known !== undefined) return known
    if (path === '/' || !this.#files.has(path)) throw kernelError('statfs', path, 'ENOENT')
    return this.usage(dirname(path))
  }

  growth(type: string): FileSystemGrowth | undefined {
    if (!this.growing.has(type)) return undefined
    return {
      size: async ({ mountPoint }) => {
        const blocks = this.blocks.get(mountPoint)
        if (blocks === undefined) throw kernelError(`read the geometry of ${type} at`, mountPoint, 'ENOTTY')
        return { blockBytes: BLOCK_BYTES, blocks }
      },
      grow: async ({ mountPoint }, blocks) => {
        if (this.readOnly.has(mountPoint)) throw kernelError(`grow ${type} at`, mountPoint, 'EROFS')
        this.blocks.set(mountPoint, blocks)
      },
    }
  }

  async addSwap(path: string): Promise<void> {
    if (!this.#files.has(path)) throw kernelError('swapon', path, 'ENOENT')
    if (this.swapped.includes(path)) throw kernelError('swapon', path, 'EBUSY')
    if (!this.swappable.has(path)) throw kernelError('swapon', path, 'EINVAL')
    this.swapped.push(path)
  }

  async swaps(): Promise<readonly string[]> {
    return [...this.swapped]
  }
}

export class FakeUevents implements Uevents {
  readonly listeners = new Set<UeventListener>()

  listen(listener: UeventListener): { close(): void } {
    this.listeners.add(listener)
    return { close: () => this.listeners.delete(listener) }
  }

  counts(): UeventCounts {
    return { received: 0, failures: 0 }
  }

  send(datagram: string): void {
    const event = parseUevent(datagram)
    if (event !== undefined) for (const listener of this.listeners) listener.event(event)
  }
}

export class FakeKernelLog implements KernelLog {
  readonly #lines: (KernelLine & { readonly timeUs: bigint })[] = []
  readonly #followers = new Set<(line: KernelLine) => void>()
  readonly #clock: Pick<Clock, 'boottimeNs'>

  constructor(clock: Pick<Clock, 'boottimeNs'>) {
    this.#clock = clock
  }

  follow(fromUs: bigint | undefined, line: (line: KernelLine) => void): void {
    if (fromUs !== undefined) for (const each of this.#lines) if (each.timeUs >= fromUs) line(each)
    this.#followers.add(line)
  }

  /** While there is no agent. */
  sayAlone(text: string): KernelLine {
    const timeUs = this.#clock.boottimeNs() / 1000n
    const line = { sequence: BigInt(this.#lines.length), timeUs, text }
    this.#lines.push(line)
    return line
  }

  say(text: string): void {
    const line = this.sayAlone(text)
    for (const follower of this.#followers) follower(line)
  }
}
