import { randomBytes } from 'node:crypto'
import { closeSync, fsyncSync, openSync, rmSync, statSync, writeFileSync } from 'node:fs'

/** Several times what the record of a removal takes. */
export const RESERVE_BYTES = 512 * 1024

/** Room on the state disk for the record of what frees more. */
export class Reserve {
  readonly #path: string

  /** Makes the file, unless the disk is full already. Blocks. */
  constructor(stateFolder: string) {
    this.#path = `${stateFolder}/registry.reserve`
    this.#make()
  }

  /** Gives the room back for `write`, and takes it again once that and `tidy` are done, if there is as much. */
  spend(write: () => void, tidy: () => void): void {
    rmSync(this.#path, { force: true })
    try {
      write()
      tidy()
    } finally {
      this.#make()
    }
  }

  #make(): void {
    if (statSync(this.#path, { throwIfNoEntry: false })?.size === RESERVE_BYTES) return
    try {
      const file = openSync(this.#path, 'w', 0o600)
      try {
        // Bytes that no file system can make smaller.
        writeFileSync(file, randomBytes(RESERVE_BYTES))
        fsyncSync(file)
      } finally {
        closeSync(file)
      }
    } catch {
      // Half of it would only take room.
      rmSync(this.#path, { force: true })
    }
  }
}
