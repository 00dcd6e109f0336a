"""What a person asks for, composed of the two halves: deadline, bench, profile, …"""
