import type { FrameFiles } from '../../../src/rpc/ttrpc/stored-request.ts'

/** Files of requests as the broker would send them. */
export class MemoryFiles implements FrameFiles {
  readonly #bytes = new Map<number, Buffer>()
  readonly #sent = new Map<bigint, number>()
  #last = 100

  add(number: bigint, frame: Buffer): number {
    this.#last += 1
    this.#bytes.set(this.#last, frame)
    this.#sent.set(number, this.#last)
    return this.#last
  }

  get open(): number {
    return this.#bytes.size
  }

  take(number: bigint): number | undefined {
    const fd = this.#sent.get(number)
    this.#sent.delete(number)
    return fd
  }

  read(fd: number, offset: number, bytes: number): Buffer {
    const file = this.#bytes.get(fd)
    if (file === undefined) throw new Error(`file ${fd} is not open`)
    return file.subarray(offset, offset + bytes)
  }

  close(fd: number): void {
    if (!this.#bytes.delete(fd)) throw new Error(`file ${fd} is not open`)
  }
}
