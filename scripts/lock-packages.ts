import { lockPackages } from '../src/image/lock.ts'

/** `node scripts/lock-packages.ts`: locks the newest version of each package of the guest. */
await lockPackages((line) => console.error(line))
