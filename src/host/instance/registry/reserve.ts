import { randomBytes } from 'node:crypto'
import { rm, stat, writeFile } from 'node:fs/promises'

/** Several times what the record of a removal takes. */
export const RESERVE_BYTES = 512 * 1024

/** Room on the state disk for the record of what frees more. */
export class Reserve {
  readonly #path: string

  private constructor(path: string) {
    this.#path = path
  }

  /** Makes the file, unless the disk is full already. */
  static async open(stateFolder: string): Promise<Reserve> {
    const reserve = new Reserve(`${stateFolder}/registry.reserve`)
    await reserve.#make()
    return reserve
  }

  /** Gives the room back for `write`, and takes it again once that and `tidy` are done, if there is as much. */
  async spend(write: () => Promise<void>, tidy: () => void): Promise<void> {
    await rm(this.#path, { force: true })
    try {
      await write()
      tidy()
    } finally {
      await this.#make()
    }
  }

  async #make(): Promise<void> {
    const present = await stat(this.#path).catch(() => undefined)
    if (present?.size === RESERVE_BYTES) return
    try {
      // Bytes that no file system can make smaller.
      await writeFile(this.#path, randomBytes(RESERVE_BYTES), { mode: 0o600, flush: true })
    } catch {
      // Half of it would only take room.
      await rm(this.#path, { force: true })
    }
  }
}
