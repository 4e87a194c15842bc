import { dirname } from 'node:path'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { loadNative } from '../../../src/os/native.ts'

// node read-file.ts ADDON PATH: prints a file as `Files` reads it, in the namespaces of this process.
const [, , addon = '', path = ''] = process.argv
process.stdout.write(await linuxFiles(loadNative(dirname(addon))).readText(path))
